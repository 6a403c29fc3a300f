"""k-means in scikit-learn's style; scikit-learn itself is used if it is installed."""
from __future__ import annotations

import inspect
from ctypes import byref, c_uint64
from typing import Any, Dict, Optional

import numpy as np

from ._arrays import address, as_numpy, is_torch, matrix
from ._library import CKmeansHistory, InvalidError, check, integer, lib
from ._places import Gpu, on_gpu, place_of
from .features import assign, metric_code

__all__ = ["KMeans", "BaseEstimator", "ClusterMixin", "check_fitted"]

try:
    from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted

    try:
        from sklearn.utils.validation import validate_data
    except ImportError:  # before 1.6

        def validate_data(estimator: Any, X: Any, **how: Any) -> np.ndarray:
            return np.asarray(estimator._validate_data(X, **how))

    HAVE_SKLEARN = True
except ImportError:
    HAVE_SKLEARN = False

    class BaseEstimator:  # type: ignore[no-redef]
        """Parameters as in scikit-learn's estimators."""

        def get_params(self, deep: bool = True) -> Dict[str, Any]:
            return {name: getattr(self, name)
                    for name in inspect.signature(type(self)).parameters}

        def set_params(self, **params: Any) -> "BaseEstimator":
            known = self.get_params()
            for name, value in params.items():
                if name not in known:
                    raise ValueError(f"{name}: no parameter of {type(self).__name__}; it has "
                                     + ", ".join(known))
                setattr(self, name, value)
            return self

        def __repr__(self) -> str:
            initial = inspect.signature(type(self)).parameters
            said = [f"{k}={v!r}" for k, v in self.get_params().items()
                    if v is not initial[k].default and v != initial[k].default]
            return f"{type(self).__name__}({', '.join(said)})"

    class ClusterMixin:  # type: ignore[no-redef]
        pass

    class TransformerMixin:  # type: ignore[no-redef]
        pass


def check_fitted(estimator: Any, attribute: str) -> None:
    if HAVE_SKLEARN:
        check_is_fitted(estimator)
    elif not hasattr(estimator, attribute):
        raise ValueError(f"{type(estimator).__name__}: not fitted yet; call fit first")


class KMeans(TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """k-means, the best of several runs from greedy k-means++ seeds.

    Parameters
    ----------
    n_clusters : int
        Number of clusters K.
    metric : 'cosine' or 'euclidean'
        cosine: rows are first scaled to length 1.
    n_init : int
        Number of runs; the best one is kept.
    max_iter : int
        Most iterations of one run.
    tol : float
        A run ends when the squared shifts of the centroids add up to this fraction of the mean
        variance of the features.
    random_state : int or None
        The seed; None means 1, so that the same input gives the same bits.
    device : str
        For host arrays: 'cpu', or 'auto' for the fastest device available.  Arrays on a GPU are
        clustered there.
    threads : int
        0 for all cores.

    Attributes
    ----------
    labels_ : int32 [n]
        For a CUDA tensor: an int64 tensor on its device; likewise from predict.
    cluster_centers_ : float32 [K, d]
        Plain means (with metric='cosine' of the unit rows, themselves not scaled to length 1).  For
        a CUDA tensor: a tensor on its device.
    inertia_ : float
        Sum over rows of the squared distance, or 1 - cos, to their centroid.
    n_iter_ : int
        Iterations of the best run.
    history_ : list of dict
        One record per iteration, of all runs; pandas.DataFrame(history_) is a table.
    """

    def __init__(self, n_clusters: int = 8, *, metric: str = "cosine", n_init: int = 10,
                 max_iter: int = 300, tol: float = 1e-4, random_state: Optional[int] = None,
                 device: str = "cpu", threads: int = 0) -> None:
        self.n_clusters = n_clusters
        self.metric = metric
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.device = device
        self.threads = threads

    def fit(self, X: Any, y: Any = None) -> "KMeans":
        """Clusters the rows of X, [n, d].  y is ignored."""
        place = place_of(X, self.threads)
        x = self._rows_on_gpu(X, place) if isinstance(place, Gpu) else self._rows(X, reset=True)
        clusters = integer(self.n_clusters, "n_clusters")
        if len(x) < clusters:
            raise InvalidError(f"n_samples={len(x)}: fewer than n_clusters={self.n_clusters}; "
                               "give fewer clusters")
        o = lib.conr_kmeans_defaults()
        o.clusters, o.metric, o.tolerance = clusters, metric_code(self.metric), self.tol
        o.restarts = integer(self.n_init, "n_init")
        o.iterations = integer(self.max_iter, "max_iter")
        o.seed = self._seed()
        centers = place.empty((max(1, clusters), x.shape[1]), "float32")
        labels = place.empty(len(x), "int32")
        history = CKmeansHistory()
        with place.context(self.threads, self.device) as c:
            check(lib.conr_kmeans(c.handle, address(x), *x.shape, byref(o), address(centers),
                                  address(labels), byref(history)))
        if on_gpu(X) is not None:
            centers, labels = place.give(centers, X), place.give(labels, X)
        self.cluster_centers_, self.labels_ = centers, labels
        self.inertia_ = history.objective
        self.history_ = [{name: getattr(history.step[i], name)
                          for name, _ in history.step._type_._fields_}
                         for i in range(history.steps)]
        best = [step["iteration"] for step in self.history_ if step["run"] == history.run]
        lib.conr_kmeans_history_free(byref(history))
        self.n_iter_ = max(best, default=1)
        return self

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """fit, then labels_."""
        return self.fit(X).labels_

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """fit, then transform."""
        return self.fit(X).transform(X)

    def predict(self, X: Any) -> np.ndarray:
        """The nearest centroid of each row."""
        self._check_fitted()
        rows = self._rows(X) if on_gpu(X) is None else X
        labels: np.ndarray = assign(rows, self.cluster_centers_, metric=self.metric,
                                    threads=self.threads).labels
        return labels

    def transform(self, X: Any) -> np.ndarray:
        """The distance of each row to every centroid, float32 [n, K]."""
        self._check_fitted()
        x = self._rows(X)
        return np.stack([assign(x, center[None], metric=self.metric,
                                threads=self.threads).distances
                         for center in self.cluster_centers_], axis=1)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the inertia of these rows."""
        self._check_fitted()
        away = assign(self._rows(X), self.cluster_centers_, metric=self.metric,
                      threads=self.threads).distances.astype(np.float64)
        return -float(np.sum(away ** 2 if self.metric == "euclidean" else away))

    def _seed(self) -> int:
        if self.random_state is None:
            return 1
        if isinstance(self.random_state, (int, np.integer)):
            return integer(self.random_state, "random_state", c_uint64)
        return int(self.random_state.randint(2 ** 31))  # a NumPy RandomState

    def _check_fitted(self) -> None:
        check_fitted(self, "cluster_centers_")

    def _rows_on_gpu(self, X: Any, place: Gpu) -> Any:
        """X on the GPU, to be clustered there."""
        x = place.matrix(X, "X")
        self.n_features_in_ = x.shape[1]
        return x

    def _rows(self, X: Any, reset: bool = False) -> np.ndarray:
        """X checked by scikit-learn if installed: its users know its messages."""
        if is_torch(X) or hasattr(X, "__dlpack__") and not isinstance(X, np.ndarray):
            X = as_numpy(X)
        if HAVE_SKLEARN:
            rows: np.ndarray = validate_data(self, X, reset=reset, dtype=np.float32, order="C",
                                             accept_large_sparse=False)
            return rows
        x = matrix(X, "X", None if reset else self.n_features_in_)
        if reset:
            self.n_features_in_ = x.shape[1]
        return x

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _more_tags(self) -> Dict[str, Any]:  # scikit-learn before 1.6
        return {"preserves_dtype": [np.float32]}

    def __sklearn_tags__(self) -> Any:  # and since
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
