"""Clustering: a run made from features.  It takes features (or, made by the built-in descriptor or
from a training, images) and assigns them to its clusters."""
from __future__ import annotations

import weakref
from ctypes import POINTER, byref, c_float, c_int64, c_void_p
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from ._arrays import address, matrix, taken
from ._images import opened
from ._library import CClusteringInfo, check, context, lib, text
from ._settings import PathLike


class Clustering:
    """A finished run made from features, from `load` or from `DeepCluster.model_`."""

    def __init__(self, path: PathLike, *, device: str = "auto", threads: int = 0) -> None:
        self.path, self.device, self.threads = Path(path), device, threads
        handle, info = c_void_p(), CClusteringInfo()
        with context("cpu", threads) as c:
            check(lib.conr_clustering_open(c.handle, text(self.path, "path"), byref(handle)))
        self._handle = handle
        self._scratch: Any = None
        self._close = weakref.finalize(self, lib.conr_clustering_close, handle)
        lib.conr_clustering_about(handle, byref(info))
        #: 'features', or 'hog' or 'model' for images
        self.takes: str = info.takes.decode()
        self.method: str = info.method.decode()
        self.refine: str = info.refine.decode()
        self.features, self.width, self.clusters = info.d, info.width, info.clusters
        #: float32 [K, d]
        self.centroids: np.ndarray = np.load(self.path / "centroids.npy")

    def __reduce__(self) -> Any:
        return _reopen, (str(self.path), self.device, self.threads)

    def embed(self, X: Any) -> np.ndarray:
        """Features, or images, as the run clusters them: float32 [n, d], rows of length 1."""
        return self._embed(X)[0]

    __call__ = embed

    def _embed(self, X: Any) -> Tuple[np.ndarray, Optional[List[str]]]:
        with context(self.device, self.threads) as c:
            if self.takes == "features":
                x = matrix(X)
                out = np.empty((len(x), self.width), np.float32)
                check(lib.conr_clustering_embed(c.handle, self._handle, address(x), *x.shape,
                                                address(out)))
                return out, None
            data, n = POINTER(c_float)(), c_int64()
            with opened(c, X) as m:
                check(lib.conr_clustering_images(c.handle, self._handle, m.handle, byref(data),
                                                 byref(n)))
                return taken(data, n.value, self.width), m.paths()

    def predict(self, X: Any) -> np.ndarray:
        """The cluster of each row or image, int32 [n]."""
        return np.asarray(self.assign(X)["cluster"])

    def assign(self, X: Any) -> Dict[str, Any]:
        """Cluster, distance (1 - cos to the centroid) and boundary ratio of each row, and the path
        of each image, as a dict of columns for pandas.DataFrame."""
        rows, paths = self._embed(X)
        labels = np.empty(len(rows), np.int32)
        distances, boundary = np.empty((2, len(rows)), np.float32)
        with context(self.device, self.threads) as c:
            check(lib.conr_clustering_assign(c.handle, self._handle, address(rows), len(rows),
                                             address(labels), address(distances),
                                             address(boundary)))
        found: Dict[str, Any] = {} if paths is None else {"path": paths}
        found.update(cluster=labels, distance=distances, boundary=boundary)
        return found

    def __repr__(self) -> str:
        return (f"<conr.Clustering {self.path}: {self.takes}, {self.features} -> {self.width}, "
                f"{self.clusters} clusters by {self.method}>")


def _reopen(path: str, device: str, threads: int) -> Clustering:
    return Clustering(path, device=device, threads=threads)
