"""Features of images by somebody's network: any callable, a torch module, an ONNX session."""
from __future__ import annotations

from typing import Any, Callable, List, Tuple

import numpy as np

from ._arrays import as_numpy, is_torch, matrix
from ._images import is_path, opened
from ._library import InvalidError, context, integer

BATCH = 64
#: what torchvision's and timm's networks were trained with
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


def is_features(x: Any) -> bool:
    """Whether x is a matrix of numbers, in contrast to images and paths."""
    if is_path(x) or isinstance(x, (list, tuple)) and all(is_path(p) for p in x):
        return False
    if not (is_torch(x) or hasattr(x, "__array__") or hasattr(x, "__dlpack__")):
        return False
    return as_numpy(x).ndim == 2


def _color(pixels: np.ndarray) -> np.ndarray:
    """[n,h,w,3] in [0,1]; scaling overshoots a little."""
    pixels = np.clip(pixels, 0, 1)
    return np.repeat(pixels, 3, axis=3) if pixels.shape[3] == 1 else pixels


def _planes(pixels: np.ndarray) -> np.ndarray:
    """[n,3,h,w], scaled as most networks expect."""
    return np.ascontiguousarray(((pixels - MEAN) / DEVIATION).transpose(0, 3, 1, 2), np.float32)


def _flat(found: Any) -> np.ndarray:
    """[n,d]: maps [n,d,h,w] are averaged, lists of tokens [n,t,d] give their first."""
    a = as_numpy(found)
    if a.ndim == 4:
        a = a.mean(axis=(2, 3))
    elif a.ndim == 3:
        a = a[:, 0]
    return matrix(a, "encoder")


def _caller(encoder: Any) -> Callable[[np.ndarray], np.ndarray]:
    """The encoder as a function of pixels [n,h,w,3] in [0,1]."""
    if hasattr(encoder, "run") and hasattr(encoder, "get_inputs"):  # onnxruntime
        name = encoder.get_inputs()[0].name
        return lambda pixels: _flat(encoder.run(None, {name: _planes(pixels)})[0])
    if hasattr(encoder, "state_dict") and hasattr(encoder, "eval"):
        import torch

        place = next(iter(encoder.parameters()), torch.zeros(1)).device
        encoder.eval()

        def forward(pixels: np.ndarray) -> np.ndarray:
            with torch.no_grad():
                found = encoder(torch.from_numpy(_planes(pixels)).to(place))
            return _flat(getattr(found, "last_hidden_state", found))

        return forward
    if callable(encoder):
        return lambda pixels: _flat(encoder(pixels))
    raise InvalidError(f"encoder: a {type(encoder).__name__} cannot be called; give a function, a "
                       "torch module or an onnxruntime session")


def encode(encoder: Any, source: Any, *, size: int = 224, threads: int = 0,
           batch: int = BATCH) -> Tuple[np.ndarray, Any]:
    """Features float32 [n,d] of images, and the images they are of: the source or, if some of it
    cannot be read, the list of the others.

    A callable gets float32 [b, size, size, 3] in [0, 1] and returns [b, d].  A torch module and an
    onnxruntime session get [b, 3, size, size], scaled by ImageNet's mean and deviation.
    """
    call, size = _caller(encoder), integer(size, "size")
    rows: List[np.ndarray] = []
    kept: List[Any] = []
    with context("cpu", threads) as c:
        listed = is_path(source) or isinstance(source, (list, tuple))
        if listed:
            with opened(c, source) as m:
                names: List[str] = m.paths()
                whole = m.pixels(size) if names and "#" in names[0].rsplit("/", 1)[-1] else None
        else:
            names, whole = [], None
            source = as_numpy(source)
        n = len(names) if listed else len(source)
        for first in range(0, n, batch):
            if whole is not None:  # an array in a file: it has no single files to open
                pixels, here = whole[first:first + batch], names[first:first + batch]
            else:
                part = (names if listed else source)[first:first + batch]
                with opened(c, part) as m:
                    pixels, here = m.pixels(size), m.paths()
            found = call(_color(pixels))
            if len(found) != len(pixels):
                raise InvalidError(f"encoder: gave {len(found)} rows for {len(pixels)} images; it "
                                   "must give one each")
            rows.append(found)
            kept += here
    if not rows:
        raise InvalidError("images: there are none; give some")
    return np.concatenate(rows), source if len(kept) == n else kept
