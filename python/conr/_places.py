"""Where a call works: in the host's memory, or on the GPU on which its features lie.

Both have the same methods, so that a call is written once.  torch is what knows the caller's GPU
arrays, streams and memory; it is imported where there are such arrays, never before.
"""
from __future__ import annotations

import contextlib
import sys
from typing import Any, ContextManager, Dict, Iterator, Optional, Union

import numpy as np

from ._arrays import as_numpy, is_torch, like, matrix, vector
from ._library import Context, DeviceError, InvalidError, check, context, lib

_CUDA = 2  # kDLCUDA of DLPack
_DEFAULT_STREAM = 1  # cudaStreamLegacy: torch calls it 0, which for the library is its own


class Host:
    """NumPy arrays; whatever else is given becomes one, without a copy where that is possible."""

    matrix = staticmethod(matrix)
    vector = staticmethod(vector)

    def numbers(self, x: Any, name: str) -> np.ndarray:
        """[n], float32."""
        a = np.ascontiguousarray(as_numpy(x), np.float32)
        if a.ndim != 1:
            raise InvalidError(f"{name}: of shape {list(a.shape)}; give numbers of shape [n]")
        return a

    def empty(self, shape: Any, dtype: str) -> np.ndarray:
        return np.empty(shape, dtype)

    def context(self, threads: int = 0, device: str = "cpu") -> ContextManager[Context]:
        return context(device, threads)

    def give(self, result: np.ndarray, given: Any) -> Any:
        """The result of a call as the caller's kind of array."""
        return like(result, given)


class Gpu:
    """torch tensors on one GPU, worked on in the order of torch's current stream there."""

    def __init__(self, device: Any) -> None:
        import torch

        self.torch, self.device = torch, device

    def matrix(self, x: Any, name: str = "features", columns: Optional[int] = None) -> Any:
        """[n,d], float32, row-major."""
        t = on_gpu(x)
        if t is None:
            t = self.torch.from_numpy(matrix(x, name, columns).copy())
        if t.dim() != 2 or t.is_complex():
            raise InvalidError(f"{name}: {t.dtype} of shape {list(t.shape)}; give numbers of shape "
                               "[n, d]")
        if columns is not None and t.shape[1] != columns:
            raise InvalidError(f"{name}: {t.shape[1]} numbers a row where {columns} are wanted; "
                               "give rows of equal length")
        return self._here(t, "float32")

    def vector(self, x: Any, dtype: Any, n: Optional[int], name: str) -> Any:
        """[n] integers of the wanted type."""
        t = on_gpu(x)
        if t is None:
            t = self.torch.from_numpy(vector(x, dtype, n, name).copy())
        if (t.dim() != 1 or t.is_floating_point() or t.is_complex()
                or (n is not None and len(t) != n)):
            wanted = "[n]" if n is None else f"[{n}]"
            raise InvalidError(f"{name}: {t.dtype} of shape {list(t.shape)}; give integers of "
                               f"shape {wanted}")
        return self._here(t, np.dtype(dtype).name)

    def numbers(self, x: Any, name: str) -> Any:
        """[n], float32."""
        t = on_gpu(x)
        if t.dim() != 1 or t.is_complex():
            raise InvalidError(f"{name}: of shape {list(t.shape)}; give numbers of shape [n]")
        return self._here(t, "float32")

    def _here(self, t: Any, dtype: str) -> Any:
        return t.to(self.device, getattr(self.torch, dtype)).resolve_neg().contiguous()

    def empty(self, shape: Any, dtype: str) -> Any:
        return self.torch.empty(shape, dtype=getattr(self.torch, dtype), device=self.device)

    @contextlib.contextmanager
    def context(self, threads: int = 0, device: str = "cpu") -> Iterator[Context]:
        """The library at work on torch's current stream.  What a call reads and writes is torch's
        memory, which torch hands out again in the order of that stream."""
        with _opened(self.device, threads) as c:
            stream = self.torch.cuda.current_stream(self.device).cuda_stream or _DEFAULT_STREAM
            check(lib.conr_set_stream(c.handle, stream))
            try:
                yield c
            finally:
                if stream != _DEFAULT_STREAM:  # whose owner may end it before our next call
                    check(lib.conr_set_stream(c.handle, None))

    def give(self, result: Any, given: Any) -> Any:
        """The result of a call as the caller's kind of array: with the integers that torch indexes
        with for a tensor; by DLPack for those of other packages that know it."""
        if is_torch(given):
            return result.long() if result.dtype == self.torch.int32 else result
        package = sys.modules.get(type(given).__module__.split(".")[0])
        return getattr(package, "from_dlpack", lambda t: t)(result)


HOST = Host()
_usable: Dict[Any, bool] = {}  # by device: whether the library can work there


@contextlib.contextmanager
def _opened(device: Any, threads: int) -> Iterator[Context]:
    """A context for a GPU, which torch is not left with as its current one."""
    import torch

    with torch.cuda.device(device), context(f"cuda:{device.index}", threads) as c:
        yield c


def on_gpu(x: Any) -> Optional[Any]:
    """x as a torch tensor that shares its memory, where that is on a GPU; else None."""
    if isinstance(x, np.ndarray):
        return None
    if is_torch(x):
        return x.detach() if x.is_cuda else None
    about = getattr(x, "__dlpack_device__", None)
    if not (int(about()[0]) == _CUDA if about else hasattr(x, "__cuda_array_interface__")):
        return None
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    return torch.from_dlpack(x) if about else torch.as_tensor(x, device="cuda")


def place_of(x: Any, threads: int = 0) -> Union[Host, Gpu]:
    """Where a call on x works.  On the host also where x lies on a GPU that the library cannot use,
    be it that it was built without CUDA: then x is copied there, and results back."""
    t = on_gpu(x)
    if t is None:
        return HOST
    if t.device not in _usable:
        try:
            with _opened(t.device, threads):
                _usable[t.device] = True
        except DeviceError:
            _usable[t.device] = False
    return Gpu(t.device) if _usable[t.device] else HOST
