"""Clusters of the graph of contextual affinities, in scikit-learn's style."""
from __future__ import annotations

from ctypes import byref
from typing import Any, Optional

import numpy as np

from ._arrays import address
from ._library import InvalidError, check, context, integer, lib
from .head import set_neighbors
from .kmeans import BaseEstimator, ClusterMixin, KMeans, check_fitted


class GraphClustering(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Clusters of the sparse graph of contextual affinities of all rows: follows shapes that
    k-means cuts through.

    Parameters
    ----------
    n_clusters : int
    k, k1, k2, layers, alpha, resymmetrize
        Of the graph, as in conr.neighbors; None for its defaults.
    random_state : int or None
        The seed; None means 1.
    device, threads
        As in conr.KMeans.

    Attributes
    ----------
    labels_ : int32 [n]
    """

    def __init__(self, n_clusters: int = 8, *, k: Optional[int] = None, k1: Optional[int] = None,
                 k2: Optional[int] = None, layers: Optional[int] = None,
                 alpha: Optional[float] = None, resymmetrize: Optional[bool] = None,
                 random_state: Optional[int] = None, device: str = "cpu",
                 threads: int = 0) -> None:
        self.n_clusters = n_clusters
        self.k = k
        self.k1 = k1
        self.k2 = k2
        self.layers = layers
        self.alpha = alpha
        self.resymmetrize = resymmetrize
        self.random_state = random_state
        self.device = device
        self.threads = threads

    _rows, _seed = KMeans._rows, KMeans._seed

    def fit(self, X: Any, y: Any = None) -> "GraphClustering":
        """Clusters the rows of X, [n, d].  y is ignored."""
        x = self._rows(X, reset=True)
        clusters = integer(self.n_clusters, "n_clusters")
        if len(x) < clusters:
            raise InvalidError(f"n_samples={len(x)}: fewer than n_clusters={self.n_clusters}; "
                               "give fewer clusters")
        o = lib.conr_graph_defaults()
        o.clusters, o.seed = clusters, self._seed()
        set_neighbors(o.neighbors, k=self.k, k1=self.k1, k2=self.k2, layers=self.layers,
                      alpha=self.alpha, resymmetrize=self.resymmetrize)
        labels = np.empty(len(x), np.int32)
        with context(self.device, self.threads) as c:
            check(lib.conr_graph(c.handle, address(x), *x.shape, byref(o), address(labels)))
        self.labels_, self._fit_X = labels, x
        return self

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """fit, then labels_."""
        return self.fit(X).labels_

    def predict(self, X: Any) -> np.ndarray:
        """The cluster of new rows, by a vote of their nearest rows, int32 [n]."""
        check_fitted(self, "labels_")
        x = self._rows(X)
        out = np.empty(len(x), np.int32)
        with context(self.device, self.threads) as c:
            check(lib.conr_graph_assign(c.handle, address(self._fit_X), address(self.labels_),
                                        *self._fit_X.shape, int(self.labels_.max()) + 1,
                                        address(x), len(x), address(out)))
        return out
