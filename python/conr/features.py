"""Neighborhoods and boundaries of any features."""
from __future__ import annotations

from ctypes import byref, c_int
from typing import Any, NamedTuple, Optional

import numpy as np

from ._arrays import address, matrix
from ._library import METRICS, InvalidError, check, context, integer, lib
from ._places import place_of


def metric_code(metric: str) -> int:
    if metric not in METRICS:
        raise InvalidError(f"metric {metric!r}: no such metric; give 'cosine' or 'euclidean'")
    return METRICS[metric]


def neighbors(features: Any, k: int = 10, k1: int = 10, k2: int = 2, *, layers: int = 2,
              alpha: float = 2.0, resymmetrize: bool = True, local: bool = False,
              recall: Optional[float] = None, threads: int = 0) -> Any:
    """Contextually affinitive neighbors of every row among all rows.

    features: [n, d], a NumPy array, a torch tensor, or anything that converts to one; rows need not
    have length 1.
    k: neighbors per row, best first; the row itself always comes first.
    k1: neighbors that form the graph.  k2: neighbors that pass messages, including the row itself.
    layers: of message passing.  alpha: exponent of the similarities.
    local: plain nearest neighbors by cosine instead.  threads: 0 for all cores.
    recall: the share of the nearest neighbors that the search must find, measured on a sample; 1 for
    all.  None: all up to 100,000 rows, beyond that 0.99, which takes much less time.

    Returns [n, min(k, n)]: int32 in NumPy; for a torch tensor, an int64 tensor on its device.  A
    CUDA tensor is processed in place, on torch's current stream; up to 8192 rows, the call does not
    wait for the GPU, and values are not checked.
    """
    place = place_of(features, threads)
    x = place.matrix(features)
    o = lib.conr_neighbors_defaults()
    o.k, o.k1, o.k2, o.layers, o.alpha = k, k1, k2, layers, alpha
    o.resymmetrize, o.local = int(resymmetrize), int(local)
    if recall is not None and not 0 < recall <= 1:
        raise InvalidError(f"recall: {recall}; give a share above 0, or 1 for all neighbors")
    o.recall = recall or 0
    ids = place.empty((len(x), max(0, min(o.k, len(x)))), "int32")
    with place.context(threads) as c:
        check(lib.conr_neighbors(c.handle, address(x), *x.shape, byref(o), address(ids)))
    return place.give(ids, features)


def assign(features: Any, centroids: Any, *, metric: str = "cosine",
           threads: int = 0) -> "Assignment":
    """The nearest centroid of each row (of equally near ones, the lower index) and its distance."""
    place = place_of(features, threads)
    x = place.matrix(features)
    centers = place.matrix(centroids, "centroids", x.shape[1])
    labels, distances = place.empty(len(x), "int32"), place.empty(len(x), "float32")
    with place.context(threads) as c:
        check(lib.conr_assign(c.handle, address(x), *x.shape, metric_code(metric),
                              address(centers), len(centers), address(labels),
                              address(distances)))
    return Assignment(place.give(labels, features), place.give(distances, features))


class Assignment(NamedTuple):
    """The cluster of each row, [n], and its distance to the centroid, [n]."""

    labels: Any
    distances: Any


def boundary(features: Any, centroids: Any, labels: Optional[Any] = None, *,
             metric: str = "cosine", normalize_centroids: bool = False, threads: int = 0) -> Any:
    """The boundary ratio of each row, in [0, 2].

    0 on the own centroid, 1 halfway to the nearest other one, above 1 beyond that.  labels: the
    cluster of each row, 0 .. K-1; None: the nearest centroid.  With metric='cosine', rows are first
    scaled to length 1; centroids only with normalize_centroids.

    Returns float32 [n]; a tensor for a tensor.  On a GPU the call does not wait: labels are not
    checked, and one outside 0 .. K-1 gives NaN.
    """
    place = place_of(features, threads)
    x = place.matrix(features)
    centers = place.matrix(centroids, "centroids", x.shape[1])
    if labels is None:
        labels = assign(x, centers, metric=metric, threads=threads).labels
    own = place.vector(labels, np.int32, len(x), "labels")
    ratio = place.empty(len(x), "float32")
    with place.context(threads) as c:
        check(lib.conr_boundary(c.handle, address(x), *x.shape, metric_code(metric),
                                address(centers), len(centers), address(own),
                                int(normalize_centroids), address(ratio)))
    return place.give(ratio, features)


def boundary_keep(ratio: Any, fraction: float) -> Any:
    """The boundary filter: which rows are kept if only this fraction may be, bool [n].  True for
    the smallest ratios (at least one), and for all that equal the largest of them."""
    place = place_of(ratio)
    r = place.numbers(ratio, "ratio")
    kept = place.empty(len(r), "bool")
    with place.context() as c:
        check(lib.conr_boundary_filter(c.handle, address(r), len(r), fraction, address(kept)))
    return place.give(kept, ratio)


def boundary_fraction(epoch: int, first: float = 0.8, relax_epochs: int = 50) -> float:
    """The fraction kept in an epoch of stage 2 (from 1): grows linearly from `first` to 1."""
    return float(lib.conr_boundary_fraction(first, integer(epoch, "epoch"),
                                            integer(relax_epochs, "relax_epochs")))


def choose_clusters(features: Any, low: int = 2, high: int = 50, *, metric: str = "cosine",
                    seed: int = 1, threads: int = 0) -> int:
    """Estimates the number of clusters, low <= K <= high."""
    x = matrix(features)
    o = lib.conr_kmeans_defaults()
    o.metric, o.seed = metric_code(metric), seed
    chosen = c_int()
    with context("cpu", threads) as c:
        check(lib.conr_choose_clusters(c.handle, address(x), *x.shape, byref(o),
                                       integer(low, "low"), integer(high, "high"), byref(chosen),
                                       None))
    return chosen.value
