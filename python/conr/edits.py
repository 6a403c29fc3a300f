"""Edits: what a person decided about the clusters of a run (docs/open.md)."""
from __future__ import annotations

import os
import shutil
import subprocess
import weakref
from ctypes import byref, c_int, c_void_p, string_at
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

import numpy as np

from ._arrays import address
from ._library import CEditsInfo, FileError, InvalidError, check, context, integer, lib, text
from ._settings import PathLike

MARKS = ("none", "outlier", "wrong")


class Edits:
    """Names, merges and corrections of the clusters of a finished run.

    Each decision is on disk when its call returns; labels.csv follows.  Until close() nobody else
    can write into the run (read_only=True: anybody may).

        with conr.Edits("runs/photos") as e:
            e.rename(3, "dogs")
            e.merge(3, 5)
    """

    def __init__(self, run: PathLike, *, read_only: bool = False) -> None:
        self.run = Path(run)
        handle = c_void_p()
        check(lib.conr_edits_open(text(self.run, "run"), int(read_only), byref(handle)))
        self._handle: Optional[c_void_p] = handle
        self._close = weakref.finalize(self, lib.conr_edits_close, handle)

    def close(self) -> None:
        self._handle = None
        self._close()

    def __enter__(self) -> "Edits":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _open(self) -> c_void_p:
        if self._handle is None:
            raise InvalidError("edits: are closed; open them again")
        return self._handle

    def about(self) -> Dict[str, Any]:
        """n, clusters, found, next, done, undone, undo, redo, version: as conr.h says."""
        info = CEditsInfo()
        lib.conr_edits_about(self._open(), byref(info))
        out = {f[0]: getattr(info, f[0]) for f in CEditsInfo._fields_}
        return {k: v.decode() if isinstance(v, bytes) else v for k, v in out.items()}

    @property
    def labels(self) -> np.ndarray:
        """int32 [n]: the cluster of each image; -1: marked."""
        n = self.about()["n"]
        return np.frombuffer(string_at(lib.conr_edits_labels(self._open()), 4 * n),
                             np.int32).copy()

    @property
    def marks(self) -> np.ndarray:
        """uint8 [n]: 0, 1 outlier, 2 wrong."""
        n = self.about()["n"]
        return np.frombuffer(string_at(lib.conr_edits_marks(self._open()), n), np.uint8).copy()

    @property
    def names(self) -> Dict[int, str]:
        """The names that clusters were given."""
        found = {k: lib.conr_edits_name(self._open(), k) for k in range(self.about()["next"])}
        return {k: name.decode() for k, name in found.items() if name}

    def rename(self, cluster: int, name: str) -> None:
        check(lib.conr_edits_rename(self._open(), integer(cluster, "cluster"), name.encode()))

    def merge(self, *clusters: int) -> None:
        """All into the first."""
        given = (c_int * len(clusters))(*(integer(k, "cluster") for k in clusters))
        check(lib.conr_edits_merge(self._open(), given, len(clusters)))

    def split(self, cluster: int, k: int, seed: int = 1) -> None:
        with context("cpu", 0) as c:
            check(lib.conr_edits_split(c.handle, self._open(), integer(cluster, "cluster"),
                                       integer(k, "k"), seed))

    def move(self, images: Sequence[int], to: Optional[int] = None,
             name: Optional[str] = None) -> int:
        """To a cluster, or with None to a new one; returns its number."""
        where = self.about()["next"] if to is None else integer(to, "to")
        ids = np.ascontiguousarray(images, np.int64)
        check(lib.conr_edits_move(self._open(), address(ids), len(ids), where,
                                  name.encode() if name else None))
        return where

    def mark(self, images: Sequence[int], as_: str) -> None:
        """as_: 'outlier', 'wrong' or 'none'."""
        if as_ not in MARKS:
            raise InvalidError(f"mark {as_!r}: is none; give one of {', '.join(MARKS)}")
        ids = np.ascontiguousarray(images, np.int64)
        check(lib.conr_edits_mark(self._open(), address(ids), len(ids), MARKS.index(as_)))

    def clusters(self, K: int, seed: int = 1) -> None:
        """All images again into K clusters, names carried over."""
        with context("cpu", 0) as c:
            check(lib.conr_edits_clusters(c.handle, self._open(), integer(K, "K"), seed))

    def undo(self) -> None:
        check(lib.conr_edits_undo(self._open()))

    def redo(self) -> None:
        check(lib.conr_edits_redo(self._open()))


def reset_edits(run: PathLike) -> None:
    """Takes back all edits of a run."""
    check(lib.conr_edits_reset(text(run, "run")))


def open_run(run: PathLike, browser: bool = True) -> None:
    """Runs the program's `conr open` until it is ended."""
    beside = Path(lib._name).with_name("conr") if lib._name else None
    program = str(beside) if beside and os.access(beside, os.X_OK) else shutil.which("conr")
    if program is None:
        raise FileError("open: the program conr was not found; install it, and have it in PATH")
    words = [program, "open", os.fspath(run)] + ([] if browser else ["--no-browser"])
    p = subprocess.Popen(words)
    try:
        code = p.wait()
    except KeyboardInterrupt:  # which the program gets as well, and ends
        code = p.wait()
    if code not in (0, 130):
        raise FileError(f"open: the program ended with {code}; see its message")
