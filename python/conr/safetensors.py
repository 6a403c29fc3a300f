"""safetensors files: weights by name, without another package.

A file consists of eight bytes with the length of a JSON header, the header, and the data; the
header gives the type, shape and position of each tensor.
"""
from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple, Union

import numpy as np

from ._arrays import as_numpy
from ._library import FormatError, check_output

_types = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
          "I8": "i1", "U8": "u1", "BOOL": "?"}
_names = {np.dtype(numpy): name for name, numpy in _types.items()}

PathLike = Union[str, "os.PathLike[str]"]


def read_safetensors(path: PathLike) -> Tuple[Dict[str, np.ndarray], Dict[str, str]]:
    """(tensors by name, metadata of the file).  The arrays share one read-only block; bf16 becomes
    float32."""
    data = memoryview(Path(path).read_bytes())
    try:
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(bytes(data[8:8 + length]))
        notes = header.pop("__metadata__", {})
        body = data[8 + length:]
        return {name: _tensor(about, body) for name, about in header.items()}, notes
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as e:
        raise FormatError(f"{path}: not a safetensors file, or cut short ({e}); download it "
                          "again") from e


def _tensor(about: Mapping[str, Any], body: memoryview) -> np.ndarray:
    first, last = about["data_offsets"]
    if not 0 <= first <= last <= len(body):
        raise ValueError("a tensor lies outside the file")
    raw = body[first:last]
    if about["dtype"] == "BF16":  # the upper half of a float32
        values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        values = np.frombuffer(raw, _types[about["dtype"]])
    return values.reshape(about["shape"])


def write_safetensors(path: PathLike, tensors: Mapping[str, Any],
                      notes: Optional[Mapping[str, str]] = None) -> None:
    """Writes arrays or torch tensors by name; the file is written completely or not at all."""
    check_output(path)
    header: Dict[str, Any] = {"__metadata__": dict(notes)} if notes else {}
    arrays, at = [], 0
    for name, tensor in tensors.items():
        a = as_numpy(tensor)
        if a.dtype.newbyteorder("<") not in _names:
            raise FormatError(f"{name}: elements of type {a.dtype}; give floats or integers")
        a = np.ascontiguousarray(a, a.dtype.newbyteorder("<")).reshape(a.shape)
        header[name] = {"dtype": _names[a.dtype], "shape": list(a.shape),
                        "data_offsets": [at, at + a.nbytes]}
        arrays.append(a)
        at += a.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    unfinished = Path(f"{path}.part")
    with open(unfinished, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for a in arrays:
            f.write(a.tobytes())
    os.replace(unfinished, path)
