"""Scores of clusterings.

Labels are integers or anything that can be compared and sorted, such as names.  Samples whose true
label is -1 are unlabeled and left out.
"""
from __future__ import annotations

from ctypes import byref, c_double, c_uint64
from typing import Any, Dict, NamedTuple, Optional, Tuple

import numpy as np

from ._arrays import address, as_numpy, matrix, narrowed, vector
from ._library import CConfusion, CScores, InvalidError, check, context, integer, lib
from .features import metric_code

__all__ = ["nmi", "acc", "ari", "balanced_acc", "scores", "confusion", "Confusion", "purity",
           "silhouette", "knn"]


def _integers(labels: Any, name: str) -> Tuple[np.ndarray, Optional[np.ndarray]]:
    """Labels as int64 [n], and the values that they stand for (None if they are integers)."""
    a = as_numpy(labels)
    if a.ndim != 1:
        raise InvalidError(f"{name}: of shape {list(a.shape)}; give labels of shape [n]")
    if a.dtype.kind in "iub":
        return narrowed(a, np.int64, name), None
    names, numbers = np.unique(a, return_inverse=True)
    return np.ascontiguousarray(numbers, np.int64), names


def _pair(truth: Any, pred: Any) -> Tuple[np.ndarray, np.ndarray]:
    t, p = _integers(truth, "truth")[0], _integers(pred, "pred")[0]
    if len(t) != len(p):
        raise InvalidError(f"labels: {len(t)} true, {len(p)} predicted; give as many of both")
    return t, p


def scores(truth: Any, pred: Any) -> Dict[str, Any]:
    """All of nmi, acc, ari and balanced_acc at once, with n, unlabeled, clusters and classes."""
    t, p = _pair(truth, pred)
    s = CScores()
    check(lib.conr_metrics(address(t), address(p), len(t), byref(s)))
    return {field[0]: getattr(s, field[0]) for field in CScores._fields_}


def nmi(truth: Any, pred: Any) -> float:
    """Mutual information over the arithmetic mean of the entropies, in [0, 1]."""
    return float(scores(truth, pred)["nmi"])


def acc(truth: Any, pred: Any) -> float:
    """Accuracy under the best one-to-one match of clusters and classes (Hungarian algorithm)."""
    return float(scores(truth, pred)["acc"])


def ari(truth: Any, pred: Any) -> float:
    """Adjusted Rand index: 1 for equal partitions, about 0 for unrelated ones."""
    return float(scores(truth, pred)["ari"])


def balanced_acc(truth: Any, pred: Any) -> float:
    """Accuracy of each class under the match of ACC, averaged over classes."""
    return float(scores(truth, pred)["balanced_acc"])


class Confusion(NamedTuple):
    """Counts of cluster-class pairs, both in ascending order of their labels."""

    clusters: np.ndarray  #: [clusters] labels
    classes: np.ndarray  #: [classes] labels
    counts: np.ndarray  #: [clusters, classes]
    match: np.ndarray  #: [clusters] index of the class that ACC matches to it, or -1
    purity: np.ndarray  #: [clusters] share of the largest class


def confusion(truth: Any, pred: Any) -> Confusion:
    """Counts of every cluster and class, the match of ACC, and the purity of each cluster."""
    t, class_names = _integers(truth, "truth")
    p, cluster_names = _integers(pred, "pred")
    _pair(t, p)
    m = CConfusion()
    check(lib.conr_confusion_make(address(t), address(p), len(t), byref(m)))
    try:
        def copied(pointer: Any, *shape: int) -> np.ndarray:
            return np.ctypeslib.as_array(pointer, shape=shape).copy()

        clusters, classes = copied(m.cluster, m.clusters), copied(m.class_, m.classes)
        return Confusion(clusters if cluster_names is None else cluster_names[clusters],
                         classes if class_names is None else class_names[classes],
                         copied(m.count, m.clusters, m.classes), copied(m.match, m.clusters),
                         copied(m.purity, m.clusters))
    finally:
        lib.conr_confusion_free(byref(m))


def purity(ids: Any, labels: Any, kept: Optional[Any] = None) -> np.ndarray:
    """The mean share of a row's own class among its first 1, 2, ... k-1 neighbors.

    ids: [n, k] from conr.neighbors; kept: bool [n], the rows that count as anchors; None: all.
    """
    a = as_numpy(ids)
    if a.ndim != 2 or a.dtype.kind not in "iu":
        raise InvalidError(f"ids: {a.dtype} of shape {list(a.shape)}; give neighbors of shape "
                           "[n, k]")
    a = narrowed(a, np.int32, "ids")
    t, _ = _integers(labels, "labels")
    if len(t) != len(a):
        raise InvalidError(f"labels: {len(t)} for {len(a)} rows; give one per row")
    mask = None if kept is None else vector(kept, np.uint8, len(a), "kept")
    out = np.empty(max(0, a.shape[1] - 1))
    check(lib.conr_purity(address(a), *a.shape, address(t), address(mask), address(out)))
    return out


def silhouette(features: Any, labels: Any, *, metric: str = "cosine", seed: int = 1,
               threads: int = 0) -> float:
    """The mean silhouette, in [-1, 1]; from 20,000 rows on, over a sample of the rows."""
    x = matrix(features)
    numbers, _ = _integers(labels, "labels")
    own = vector(np.unique(numbers, return_inverse=True)[1], np.int32, len(x), "labels")
    mean = c_double()
    with context("cpu", threads) as c:
        check(lib.conr_silhouette(c.handle, address(x), *x.shape, metric_code(metric),
                                  address(own), integer(seed, "seed", c_uint64), byref(mean), None))
    return mean.value


def knn(features: Any, labels: Any, query: Optional[Any] = None,
        query_labels: Optional[Any] = None, *, k: int = 20, temperature: float = 0.07,
        threads: int = 0) -> float:
    """Weighted k-nearest-neighbor accuracy by cosine.

    The rows of `query` are classified by those of `features`; without `query`, each row by all the
    others.
    """
    x = matrix(features)
    known = vector(labels, np.int64, len(x), "labels")
    q = asked = None
    if query is not None:
        q = matrix(query, "query", x.shape[1])
        asked = vector(query_labels, np.int64, len(q), "query_labels")
    accuracy = c_double()
    with context("cpu", threads) as c:
        check(lib.conr_knn_accuracy(c.handle, address(x), address(known), len(x), address(q),
                                    address(asked), 0 if q is None else len(q), x.shape[1],
                                    integer(k, "k"), temperature, byref(accuracy)))
    return accuracy.value
