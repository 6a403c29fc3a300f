"""Where a call runs: in host memory, or on the GPU that holds its features.

Both places have the same methods, so that a call is written once.  GPU arrays, streams and memory
are handled through torch, which is imported only when such arrays appear.
"""
from __future__ import annotations

import contextlib
import sys
from typing import Any, ContextManager, Dict, Iterator, Optional, Union

import numpy as np

from ._arrays import as_numpy, is_torch, like, matrix, vector
from ._library import Context, DeviceError, InvalidError, check, context, lib

_CUDA = 2  # kDLCUDA of DLPack
_DEFAULT_STREAM = 1  # cudaStreamLegacy; torch's 0 would be the context's own stream


class Host:
    """NumPy arrays; anything else is converted to one, without a copy if possible."""

    matrix = staticmethod(matrix)
    vector = staticmethod(vector)

    def numbers(self, x: Any, name: str) -> np.ndarray:
        """x as [n], float32."""
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
    """torch tensors on one GPU, processed in the order of torch's current stream there."""

    def __init__(self, device: Any) -> None:
        import torch

        self.torch, self.device = torch, device

    def matrix(self, x: Any, name: str = "features", columns: Optional[int] = None) -> Any:
        """x as [n,d], float32, row-major."""
        t = on_gpu(x)
        if t is None:
            t = self.torch.from_numpy(matrix(x, name, columns).copy())
        if t.dim() != 2 or t.is_complex():
            raise InvalidError(f"{name}: {t.dtype} of shape {list(t.shape)}; give numbers of shape "
                               "[n, d]")
        if columns is not None and t.shape[1] != columns:
            raise InvalidError(f"{name}: {t.shape[1]} columns, expected {columns}; give rows of "
                               "equal length")
        return self._here(t, "float32")

    def vector(self, x: Any, dtype: Any, n: Optional[int], name: str) -> Any:
        """x as [n] integers of the given type."""
        t = on_gpu(x)
        if t is None:
            t = self.torch.from_numpy(vector(x, dtype, n, name).copy())
        if (t.dim() != 1 or t.is_floating_point() or t.is_complex()
                or (n is not None and len(t) != n)):
            wanted = "[n]" if n is None else f"[{n}]"
            raise InvalidError(f"{name}: {t.dtype} of shape {list(t.shape)}; give integers of "
                               f"shape {wanted}")
        if np.dtype(dtype) == np.int32 and t.dtype == self.torch.int64:
            # what does not fit becomes -1, an invalid label, without waiting for the GPU
            t = self.torch.where((t >= -2 ** 31) & (t < 2 ** 31), t, -1)
        return self._here(t, np.dtype(dtype).name)

    def numbers(self, x: Any, name: str) -> Any:
        """x as [n], float32."""
        t = on_gpu(x)
        if t is None:
            t = self.torch.from_numpy(HOST.numbers(x, name).copy())
        if t.dim() != 1 or t.is_complex():
            raise InvalidError(f"{name}: of shape {list(t.shape)}; give numbers of shape [n]")
        return self._here(t, "float32")

    def _here(self, t: Any, dtype: str) -> Any:
        return t.to(self.device, getattr(self.torch, dtype)).resolve_neg().contiguous()

    def empty(self, shape: Any, dtype: str) -> Any:
        return self.torch.empty(shape, dtype=getattr(self.torch, dtype), device=self.device)

    @contextlib.contextmanager
    def context(self, threads: int = 0, device: str = "cpu") -> Iterator[Context]:
        """A context on torch's current stream.  Calls read and write memory of torch, which torch
        reuses in the order of that stream."""
        with _opened(self.device, threads) as c:
            stream = self.torch.cuda.current_stream(self.device).cuda_stream or _DEFAULT_STREAM
            check(lib.conr_set_stream(c.handle, stream))
            try:
                yield c
            finally:
                if stream != _DEFAULT_STREAM:  # its owner may destroy it before our next call
                    check(lib.conr_set_stream(c.handle, None))

    def give(self, result: Any, given: Any) -> Any:
        """The result of a call as the caller's kind of array: a tensor with int64 integers, which
        torch uses as indices; for arrays of other packages, through DLPack if they support it."""
        if is_torch(given):
            return result.long() if result.dtype == self.torch.int32 else result
        package = sys.modules.get(type(given).__module__.split(".")[0])
        return getattr(package, "from_dlpack", lambda t: t)(result)


HOST = Host()
_usable: Dict[Any, bool] = {}  # by device: whether the library can use it


@contextlib.contextmanager
def _opened(device: Any, threads: int) -> Iterator[Context]:
    """A context for a GPU; restores torch's current device afterwards."""
    import torch

    with torch.cuda.device(device), context(f"cuda:{device.index}", threads) as c:
        yield c


def on_gpu(x: Any) -> Optional[Any]:
    """x as a torch tensor that shares its memory if x is on a GPU; else None."""
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
    """Where a call on x runs.  If x is on a GPU that the library cannot use, for example because it
    was built without CUDA, the host: x is copied there, and results are copied back."""
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
