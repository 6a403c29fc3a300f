"""refine: a head trained with the method on frozen features."""
from __future__ import annotations

import weakref
from ctypes import byref, c_int64, c_void_p
from typing import Any, Optional

import numpy as np

from ._arrays import address, like, matrix
from ._library import check, context, lib, text
from ._progress import TellProgress, reporter
from ._settings import PathLike


def set_neighbors(o: Any, **given: Any) -> None:
    """The options that are not None."""
    for name, value in given.items():
        if value is not None:
            setattr(o, name, int(value) if name == "resymmetrize" else value)


class Head:
    """A trained head: calling it gives the refined features of any rows, [n, width], of length 1.

    Made by `refine`, or by Head.load from the head.safetensors of a run.
    """

    def __init__(self, handle: c_void_p, device: str, threads: int) -> None:
        self._handle, self.device, self.threads = handle, device, threads
        self._close = weakref.finalize(self, lib.conr_head_close, handle)
        d, width = c_int64(), c_int64()
        lib.conr_head_about(handle, byref(d), byref(width))
        self.features, self.width = d.value, width.value

    @classmethod
    def load(cls, path: PathLike, *, device: str = "cpu", threads: int = 0) -> "Head":
        handle = c_void_p()
        with context(device, threads) as c:
            check(lib.conr_head_open(c.handle, text(path, "path"), byref(handle)))
        return cls(handle, device, threads)

    def __call__(self, features: Any) -> Any:
        x = matrix(features)
        out = np.empty((len(x), self.width), np.float32)
        with context(self.device, self.threads) as c:
            check(lib.conr_head_apply(c.handle, self._handle, address(x), *x.shape, address(out)))
        return like(out, features)

    transform = __call__

    def save(self, path: PathLike) -> None:
        check(lib.conr_head_save(self._handle, text(path, "path")))

    def __repr__(self) -> str:
        return f"<conr.Head {self.features} -> {self.width}>"


def refine(features: Any, n_clusters: int = 10, *, epochs: int = 0, k: Optional[int] = None,
           k1: Optional[int] = None, k2: Optional[int] = None, layers: Optional[int] = None,
           alpha: Optional[float] = None, resymmetrize: Optional[bool] = None,
           seed: Optional[int] = None, device: str = "cpu", threads: int = 0,
           progress: TellProgress = False) -> Head:
    """Trains a head on features [n, d] with contextually affinitive neighborhoods of the whole set.

    n_clusters: of the pseudo labels that hold back rows on boundaries.  epochs: 0 to choose by n.
    k to resymmetrize: as in conr.neighbors; None for the defaults of the head.  head(features) are the refined features.
    """
    x = matrix(features)
    o, handle = lib.conr_refine_defaults(), c_void_p()
    o.clusters, o.epochs = n_clusters, epochs
    if seed is not None:
        o.seed = seed
    set_neighbors(o.neighbors, k=k, k1=k1, k2=k2, layers=layers, alpha=alpha,
                  resymmetrize=resymmetrize)
    tell, close = reporter(progress)
    try:
        with context(device, threads, tell) as c:
            check(lib.conr_refine(c.handle, address(x), *x.shape, byref(o), byref(handle)))
    finally:
        close()
    return Head(handle, device, threads)
