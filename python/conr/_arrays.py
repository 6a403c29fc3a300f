"""Any kind of array as NumPy arrays, and results as the caller's kind of array.

NumPy arrays and anything with the buffer protocol or DLPack (such as torch tensors on the CPU) are
used in place if they are float32 and row-major; otherwise they are copied.  GPU arrays are copied
to the host here; _places.py handles the calls that need not do that.
"""
from __future__ import annotations

import ctypes
from typing import Any, Optional

import numpy as np

from ._library import InvalidError, lib


def is_torch(x: Any) -> bool:
    """Whether x is a torch tensor, without importing torch."""
    return type(x).__module__.split(".")[0] == "torch" and hasattr(x, "detach")


def as_numpy(x: Any) -> np.ndarray:
    """The same values as a NumPy array, sharing memory if possible."""
    if isinstance(x, np.ndarray):
        return x
    if is_torch(x):
        x = x.detach().cpu()
        return np.asarray((x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy())
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        if x.__dlpack_device__()[0] == 1 and hasattr(np, "from_dlpack"):  # kDLCPU; NumPy 1.22
            return np.from_dlpack(x)
        if hasattr(x, "get"):  # CuPy: a copy on the host
            return np.asarray(x.get())
        if not hasattr(x, "__array__"):
            raise InvalidError(f"{type(x).__name__}: NumPy cannot read its memory; install torch, "
                               "or give a copy in host memory")
    return np.asarray(x)


def matrix(x: Any, name: str = "features", columns: Optional[int] = None) -> np.ndarray:
    """x as [n,d], float32, row-major."""
    a = as_numpy(x)
    if a.ndim != 2 or a.dtype.kind not in "fiub":
        raise InvalidError(f"{name}: {a.dtype} of shape {list(a.shape)}; give numbers of shape "
                           "[n, d]")
    if columns is not None and a.shape[1] != columns:
        raise InvalidError(f"{name}: {a.shape[1]} columns, expected {columns}; give rows of equal "
                           "length")
    return np.ascontiguousarray(a, np.float32)


def narrowed(a: np.ndarray, dtype: Any, name: str) -> np.ndarray:
    """Integers as another type, row-major; refused if one of them does not fit."""
    if a.size and a.dtype.kind in "iu" and not np.can_cast(a.dtype, dtype):
        bounds = np.iinfo(dtype)
        low, high = int(a.min()), int(a.max())
        if low < bounds.min or high > bounds.max:
            raise InvalidError(f"{name}: holds {low if low < bounds.min else high}; give integers "
                               f"from {bounds.min} to {bounds.max}")
    return np.ascontiguousarray(a, dtype)


def vector(x: Any, dtype: Any, n: Optional[int], name: str) -> np.ndarray:
    """x as [n] integers (or bools) of the given type."""
    a = as_numpy(x)
    if a.ndim != 1 or a.dtype.kind not in "iub" or (n is not None and len(a) != n):
        wanted = "[n]" if n is None else f"[{n}]"
        raise InvalidError(f"{name}: {a.dtype} of shape {list(a.shape)}; give integers of shape "
                           f"{wanted}")
    return narrowed(a, dtype, name)


def address(a: Any) -> Optional[int]:
    """The address of the first element of an array or tensor."""
    if a is None:
        return None
    return int(a.data_ptr() if is_torch(a) else a.ctypes.data)


def like(result: np.ndarray, given: Any) -> Any:
    """The result as the caller's kind of array: for a tensor, a tensor on the same device, with
    integers as int64, which torch uses as indices."""
    if not is_torch(given):
        return result
    import torch

    out = torch.from_numpy(result)
    return (out.long() if result.dtype.kind == "i" else out).to(given.device)


def taken(pointer: Any, *shape: int) -> np.ndarray:
    """A copy of an array that the library allocated; releases the original."""
    try:
        return np.ctypeslib.as_array(pointer, shape=shape).copy()
    finally:
        lib.conr_free(ctypes.cast(pointer, ctypes.c_void_p))
