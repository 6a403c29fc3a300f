"""Sources of images for libconr: a path, an array, or a list of files."""
from __future__ import annotations

import contextlib
import os
import tempfile
from ctypes import POINTER, byref, c_float, c_int64, c_void_p
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence

import numpy as np

from ._arrays import as_numpy, taken
from ._library import CImagesInfo, CImagesOptions, Context, InvalidError, check, integer, lib, text


def _array_of(x: Any) -> np.ndarray:
    """x as uint8 [n,h,w] or [n,h,w,3], which a .npy file can hold."""
    a = as_numpy(x)
    if a.ndim == 4 and a.shape[3] == 1:
        a = a[..., 0]
    if a.dtype != np.uint8 or not (a.ndim == 3 or a.ndim == 4 and a.shape[3] == 3):
        raise InvalidError(f"images: {a.dtype} of shape {list(a.shape)}; give uint8 of shape "
                           "[n, h, w] or [n, h, w, 3]")
    return a


def is_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike))


def _line_of(path: Any) -> bytes:
    """A line of a list.  The empty label keeps tabs and the like at the end of a name."""
    encoded = text(Path(path).absolute(), "path")
    if b"\n" in encoded:
        raise InvalidError(f"path {os.fspath(path)!r}: contains a line break, which a list cannot "
                           "hold; give its folder, or rename it")
    return encoded + b"\t-1\n"


@contextlib.contextmanager
def _on_disk(source: Any) -> Iterator[str]:
    """The source as a path; arrays and lists of paths are written to a temporary file."""
    if is_path(source):
        yield os.fspath(source)
        return
    with tempfile.TemporaryDirectory(prefix="conr-") as folder:
        listed = isinstance(source, (list, tuple)) and all(is_path(p) for p in source)
        path = Path(folder) / ("images.txt" if listed else "images.npy")
        if listed:
            path.write_bytes(b"".join(_line_of(p) for p in source))
        else:
            np.save(path, _array_of(source))
        yield str(path)


class Images:
    """Open images; created by `opened`."""

    def __init__(self, c: Context, handle: c_void_p, selection: CImagesOptions) -> None:
        self.c, self.handle, self.selection = c, handle, selection

    def about(self) -> Dict[str, Any]:
        i = CImagesInfo()
        lib.conr_images_about(self.handle, byref(i))
        return {"kind": i.kind.decode(), "n": i.n, "labeled": i.labeled, "skipped": i.skipped,
                "first_skipped": i.first_skipped.decode(errors="replace") if i.first_skipped
                else None, "width": tuple(i.width), "height": tuple(i.height),
                "channels": i.channels, "classes": i.classes}

    def paths(self) -> List[str]:
        return [os.fsdecode(lib.conr_images_path(self.handle, i))
                for i in range(self.about()["n"])]

    def labels(self) -> Optional[np.ndarray]:
        """int64 [n], -1: unknown; None if there are no labels at all."""
        i = self.about()
        if not i["labeled"]:
            return None
        return np.array([lib.conr_images_label(self.handle, j) for j in range(i["n"])], np.int64)

    def pixels(self, size: int) -> np.ndarray:
        """float32 [n, size, size, channels] in [0, 1]."""
        data, n, d = POINTER(c_float)(), c_int64(), c_int64()
        size = integer(size, "size")
        check(lib.conr_images_pixels(self.c.handle, self.handle, size, byref(data), byref(n),
                                     byref(d)))
        return taken(data, n.value, size, size, d.value // (size * size))


@contextlib.contextmanager
def opened(c: Context, source: Any, *, split: str = "", classes: str = "", coarse: bool = False,
           long_tail: float = 1.0) -> Iterator[Images]:
    o = lib.conr_images_defaults()
    o.split = text(split, "split") or None
    o.classes = text(classes, "classes") or None
    o.coarse, o.long_tail = int(coarse), long_tail
    handle = c_void_p()
    with _on_disk(source) as path:
        check(lib.conr_images_open(c.handle, text(path, "path"), byref(o), c.on_count, None,
                                   byref(handle)))
        try:
            yield Images(c, handle, o)
        finally:
            lib.conr_images_close(handle)


def thumbnails(c: Context, source: Any, paths: Sequence[str], wanted: Sequence[int], size: int,
               most_bytes: float = 256e6) -> Optional[np.ndarray]:
    """float32 [len(wanted), size, size, channels]: the images at these indices; None if reading
    them would be expensive.  paths: of all images, as the run names them."""
    if not is_path(source) and not isinstance(source, (list, tuple)):
        chosen: Any = as_numpy(source)[np.asarray(wanted, int)]
    elif all(os.path.isfile(paths[i]) for i in wanted):
        chosen = [paths[i] for i in wanted]
    elif 12.0 * len(paths) * size * size <= most_bytes:
        with opened(c, source) as m:
            all_ = m.pixels(size)
        return all_[np.asarray(wanted, int)] if len(all_) == len(paths) else None
    else:
        return None
    with opened(c, chosen) as m:
        few = m.pixels(size)
    return few if len(few) == len(wanted) else None
