"""libconr through ctypes: finding it, its structures and functions, errors, contexts, stopping.

Everything that knows about C is in this file; the others call `lib` and pass it arrays.
"""
from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import operator
import os
import signal
import threading
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_double, c_float, c_int,
                    c_int32, c_int64, c_ubyte, c_uint64, c_void_p)
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

# ---- errors --------------------------------------------------------------------------------------


class Error(Exception):
    """An error of the library, with its message: "WHAT: WHY; REMEDY"."""

    code: int = 0


class InvalidError(Error, ValueError):
    """A value is outside what is allowed."""


class NoMemoryError(Error, MemoryError):
    """Not enough memory."""


class FileError(Error, OSError):
    """A file cannot be read or written."""


class FormatError(Error, ValueError):
    """A file is not what it claims to be."""


class DeviceError(Error, RuntimeError):
    """The device is missing or has failed."""


class NumberError(Error, ValueError):
    """A number is NaN or infinite."""


class Stopped(Error):
    """Stopped on request; a training has saved a checkpoint."""


# ---- values for C: ctypes would cut them to their type without a word ----------------------------

_ranges: Dict[Any, Tuple[int, int]] = {c_int: (-2 ** 31, 2 ** 31 - 1),
                                       c_int64: (-2 ** 63, 2 ** 63 - 1),
                                       c_uint64: (0, 2 ** 64 - 1)}


def integer(value: Any, name: str, of: Any = c_int) -> int:
    """value as an int that fits into this C type; `name` is that of the caller's argument."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidError(f"{name}: {value!r} is not a whole number; give one") from None
    low, high = _ranges[of]
    if not low <= number <= high:
        raise InvalidError(f"{name}: {number} is out of range; give {low} to {high}")
    return number


def text(value: Any, name: str) -> bytes:
    """A path or another text for C, where it would end at a zero byte."""
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise InvalidError(f"{name} {value!r}: contains a zero byte; leave that out")
    return encoded


class _Options(Structure):
    """A structure that we fill: its integers are checked."""

    def __setattr__(self, name: str, value: Any) -> None:
        of = {field[0]: field[1] for field in self._fields_}.get(name)
        super().__setattr__(name, integer(value, name, of) if of in _ranges else value)


# ---- structures of conr.h, field by field (a test compares their layout) -------------------------


class CProgress(Structure):
    _fields_ = [("stage", c_char_p), ("done", c_int64), ("total", c_int64), ("message", c_char_p),
                ("epoch", c_int), ("epochs", c_int), ("loss", c_double), ("lr", c_double),
                ("images_per_s", c_double), ("seconds_left", c_double)]


class CNeighborsOptions(_Options):
    _fields_ = [("k", c_int), ("k1", c_int), ("k2", c_int), ("layers", c_int), ("alpha", c_double),
                ("resymmetrize", c_int), ("local", c_int), ("recall", c_double)]


class CKmeansOptions(_Options):
    _fields_ = [("clusters", c_int), ("metric", c_int), ("restarts", c_int), ("iterations", c_int),
                ("tolerance", c_double), ("seed", c_uint64), ("start", c_void_p)]


class CKmeansStep(Structure):
    _fields_ = [("run", c_int), ("iteration", c_int), ("objective", c_double),
                ("imbalance", c_double), ("moved", c_int64), ("refilled", c_int)]


class CKmeansHistory(Structure):
    _fields_ = [("objective", c_double), ("run", c_int), ("step", POINTER(CKmeansStep)),
                ("steps", c_int)]


class CScores(Structure):
    _fields_ = [("nmi", c_double), ("acc", c_double), ("ari", c_double), ("balanced_acc", c_double),
                ("n", c_int64), ("unlabeled", c_int64), ("clusters", c_int), ("classes", c_int)]


class CConfusion(Structure):
    _fields_ = [("clusters", c_int), ("classes", c_int), ("cluster", POINTER(c_int64)),
                ("class_", POINTER(c_int64)), ("count", POINTER(c_int64)),
                ("match", POINTER(c_int)), ("purity", POINTER(c_double)), ("n", c_int64),
                ("unlabeled", c_int64)]


class CImagesOptions(_Options):
    _fields_ = [("split", c_char_p), ("classes", c_char_p), ("coarse", c_int),
                ("long_tail", c_double)]


class CImagesInfo(Structure):
    _fields_ = [("kind", c_char_p), ("n", c_int64), ("labeled", c_int64), ("skipped", c_int64),
                ("first_skipped", c_char_p), ("width", c_int * 2), ("height", c_int * 2),
                ("channels", c_int), ("classes", c_int)]


class CSettingInfo(Structure):
    _fields_ = [("key", c_char_p), ("initial", c_char_p), ("allowed", c_char_p), ("help", c_char_p)]


class CTrainOptions(_Options):
    _fields_ = [("out", c_char_p), ("resume", c_int), ("from_", c_char_p), ("stage", c_int),
                ("init", c_char_p), ("budget", c_double), ("no_report", c_int)]


class CBaselineSide(Structure):
    _fields_ = [("scores", CScores), ("agreement", c_double), ("confirmed", c_double),
                ("silhouette", c_double), ("stability", c_double)]


class CBaseline(Structure):
    _fields_ = [("images", c_int64), ("labeled", c_int), ("descriptor_wins", c_int),
                ("descriptor_confirmed", c_int),
                ("training", CBaselineSide), ("descriptor", CBaselineSide)]


class CTrainResult(Structure):
    _fields_ = [("clusters", c_int), ("epochs", c_int), ("steps", c_int64), ("images", c_int64),
                ("seconds", c_double), ("loss", c_double), ("images_per_s", c_double),
                ("labeled", c_int), ("scores", CScores), ("knn", c_double),
                ("silhouette", c_double), ("baseline", CBaseline)]


class CGraphOptions(_Options):
    _fields_ = [("clusters", c_int), ("neighbors", CNeighborsOptions), ("seed", c_uint64)]


class CRefineOptions(_Options):
    _fields_ = [("clusters", c_int), ("epochs", c_int), ("batch", c_int), ("hidden", c_int),
                ("width", c_int), ("dropout", c_double), ("average", c_double), ("lr", c_double),
                ("keep", c_double), ("seed", c_uint64), ("neighbors", CNeighborsOptions)]


class CFeaturesOptions(_Options):
    _fields_ = [("out", c_char_p), ("from_", c_char_p), ("method", c_char_p),
                ("refine", c_char_p), ("clusters", c_int), ("low", c_int), ("high", c_int),
                ("restarts", c_int), ("neighbors", CNeighborsOptions), ("seed", c_uint64),
                ("selection", CImagesOptions), ("no_report", c_int), ("encoder", c_void_p),
                ("note", c_char_p)]


class CFeaturesResult(Structure):
    _fields_ = [("clusters", c_int), ("method", c_char_p), ("n", c_int64), ("d", c_int64),
                ("seconds", c_double), ("labeled", c_int), ("scores", CScores), ("knn", c_double),
                ("silhouette", c_double), ("agreement", c_double)]


class CReportOptions(_Options):
    _fields_ = [("data", c_char_p), ("out", c_char_p)]


class CEditsInfo(Structure):
    _fields_ = [("n", c_int64), ("clusters", c_int), ("found", c_int), ("next", c_int),
                ("done", c_int), ("undone", c_int), ("undo", c_char_p), ("redo", c_char_p),
                ("version", c_int64)]


class CClusteringInfo(Structure):
    _fields_ = [("takes", c_char_p), ("method", c_char_p), ("refine", c_char_p),
                ("from_", c_char_p), ("n", c_int64), ("d", c_int64), ("width", c_int64),
                ("clusters", c_int)]


class CModelInfo(Structure):
    _fields_ = [("encoder", c_char_p), ("framework", c_char_p), ("size", c_int),
                ("channels", c_int), ("features", c_int), ("clusters", c_int),
                ("centroids", POINTER(c_float))]


OnProgress = CFUNCTYPE(c_int, POINTER(CProgress), c_void_p)
OnCount = CFUNCTYPE(c_int, c_int64, c_int64, c_void_p)
OnChoice = CFUNCTYPE(None, c_char_p, c_char_p, c_char_p, c_void_p)

NOTE_SIZE = 512  # CONR_NOTE_SIZE
METRICS = {"cosine": 0, "euclidean": 1}

# ---- the functions: name, result, arguments.  Arrays are passed as addresses. --------------------

_array, _handle = c_void_p, c_void_p
_calls: Dict[str, Tuple[Any, List[Any]]] = {
    "conr_error": (c_char_p, []),
    "conr_version": (c_char_p, []),
    "conr_open": (c_int, [c_char_p, c_int, POINTER(_handle)]),
    "conr_close": (None, [_handle]),
    "conr_device": (c_char_p, [_handle]),
    "conr_set_stream": (c_int, [_handle, c_void_p]),
    "conr_set_progress": (None, [_handle, OnProgress, c_void_p]),
    "conr_free": (None, [c_void_p]),
    "conr_check_output": (c_int, [c_char_p, c_char_p]),
    "conr_check_file": (c_int, [c_char_p]),
    "conr_neighbors_defaults": (CNeighborsOptions, []),
    "conr_neighbors": (c_int, [_handle, _array, c_int64, c_int64, POINTER(CNeighborsOptions),
                               _array]),
    "conr_purity": (c_int, [_array, c_int64, c_int, _array, _array, _array]),
    "conr_kmeans_defaults": (CKmeansOptions, []),
    "conr_kmeans": (c_int, [_handle, _array, c_int64, c_int64, POINTER(CKmeansOptions), _array,
                            _array, POINTER(CKmeansHistory)]),
    "conr_kmeans_history_free": (None, [POINTER(CKmeansHistory)]),
    "conr_assign": (c_int, [_handle, _array, c_int64, c_int64, c_int, _array, c_int, _array,
                            _array]),
    "conr_choose_clusters": (c_int, [_handle, _array, c_int64, c_int64, POINTER(CKmeansOptions),
                                     c_int, c_int, POINTER(c_int), _array]),
    "conr_boundary": (c_int, [_handle, _array, c_int64, c_int64, c_int, _array, c_int, _array,
                              c_int, _array]),
    "conr_boundary_filter": (c_int, [_handle, _array, c_int64, c_double, _array]),
    "conr_boundary_fraction": (c_double, [c_double, c_int, c_int]),
    "conr_metrics": (c_int, [_array, _array, c_int64, POINTER(CScores)]),
    "conr_confusion_make": (c_int, [_array, _array, c_int64, POINTER(CConfusion)]),
    "conr_confusion_free": (None, [POINTER(CConfusion)]),
    "conr_silhouette": (c_int, [_handle, _array, c_int64, c_int64, c_int, _array, c_uint64,
                                POINTER(c_double), POINTER(c_int64)]),
    "conr_knn_accuracy": (c_int, [_handle, _array, _array, c_int64, _array, _array, c_int64,
                                  c_int64, c_int, c_double, POINTER(c_double)]),
    "conr_images_defaults": (CImagesOptions, []),
    "conr_images_open": (c_int, [_handle, c_char_p, POINTER(CImagesOptions), OnCount, c_void_p,
                                 POINTER(_handle)]),
    "conr_images_close": (None, [_handle]),
    "conr_images_about": (None, [_handle, POINTER(CImagesInfo)]),
    "conr_images_skipped": (c_char_p, [_handle, c_int64]),
    "conr_images_label": (c_int, [_handle, c_int64]),
    "conr_images_path": (c_char_p, [_handle, c_int64]),
    "conr_images_pixels": (c_int, [_handle, _handle, c_int, POINTER(POINTER(c_float)),
                                   POINTER(c_int64), POINTER(c_int64)]),
    "conr_settings_new": (c_int, [POINTER(_handle)]),
    "conr_settings_free": (None, [_handle]),
    "conr_settings_read": (c_int, [_handle, c_char_p]),
    "conr_settings_set": (c_int, [_handle, c_char_p, c_char_p]),
    "conr_settings_get": (c_int, [_handle, c_char_p, c_char_p, c_int]),
    "conr_settings_check": (c_int, [_handle]),
    "conr_settings_choose": (c_int, [_handle, _handle, c_double, c_char_p, _handle, OnChoice,
                                     c_void_p]),
    "conr_setting": (c_int, [c_int, POINTER(CSettingInfo)]),
    "conr_train_defaults": (CTrainOptions, []),
    "conr_train": (c_int, [_handle, _handle, _handle, POINTER(CTrainOptions),
                           POINTER(CTrainResult)]),
    "conr_model_open": (c_int, [_handle, c_char_p, POINTER(_handle)]),
    "conr_model_close": (None, [_handle]),
    "conr_model_about": (None, [_handle, POINTER(CModelInfo)]),
    "conr_graph_defaults": (CGraphOptions, []),
    "conr_graph": (c_int, [_handle, _array, c_int64, c_int64, POINTER(CGraphOptions), _array]),
    "conr_graph_assign": (c_int, [_handle, _array, _array, c_int64, c_int64, c_int, _array,
                                  c_int64, _array]),
    "conr_refine_defaults": (CRefineOptions, []),
    "conr_refine": (c_int, [_handle, _array, c_int64, c_int64, POINTER(CRefineOptions),
                            POINTER(_handle)]),
    "conr_head_close": (None, [_handle]),
    "conr_head_about": (None, [_handle, POINTER(c_int64), POINTER(c_int64)]),
    "conr_head_apply": (c_int, [_handle, _handle, _array, c_int64, c_int64, _array]),
    "conr_head_save": (c_int, [_handle, c_char_p]),
    "conr_head_open": (c_int, [_handle, c_char_p, POINTER(_handle)]),
    "conr_features_defaults": (CFeaturesOptions, []),
    "conr_cluster_features": (c_int, [_handle, _handle, _array, c_int64, c_int64,
                                      POINTER(c_char_p), POINTER(CFeaturesOptions),
                                      POINTER(CFeaturesResult)]),
    "conr_budget_keep": (c_int, [_handle, _handle, c_char_p, c_double, POINTER(c_double)]),
    "conr_use_descriptor": (c_int, [_handle, _handle, POINTER(CBaseline),
                                    POINTER(CFeaturesOptions), POINTER(CFeaturesResult),
                                    c_char_p]),
    "conr_encoder_open": (c_int, [_handle, c_char_p, POINTER(c_char_p), POINTER(_handle)]),
    "conr_encoder_close": (None, [_handle]),
    "conr_is_features_run": (c_int, [c_char_p]),
    "conr_clustering_open": (c_int, [_handle, c_char_p, POINTER(_handle)]),
    "conr_clustering_close": (None, [_handle]),
    "conr_report": (c_int, [_handle, c_char_p, POINTER(CReportOptions), c_void_p]),
    "conr_edits_open": (c_int, [c_char_p, c_int, POINTER(_handle)]),
    "conr_edits_close": (None, [_handle]),
    "conr_edits_about": (None, [_handle, POINTER(CEditsInfo)]),
    "conr_edits_labels": (c_void_p, [_handle]),
    "conr_edits_marks": (c_void_p, [_handle]),
    "conr_edits_name": (c_char_p, [_handle, c_int]),
    "conr_edits_rename": (c_int, [_handle, c_int, c_char_p]),
    "conr_edits_merge": (c_int, [_handle, POINTER(c_int), c_int]),
    "conr_edits_split": (c_int, [_handle, _handle, c_int, c_int, c_uint64]),
    "conr_edits_move": (c_int, [_handle, _array, c_int64, c_int, c_char_p]),
    "conr_edits_mark": (c_int, [_handle, _array, c_int64, c_int]),
    "conr_edits_clusters": (c_int, [_handle, _handle, c_int, c_uint64]),
    "conr_edits_undo": (c_int, [_handle]),
    "conr_edits_redo": (c_int, [_handle]),
    "conr_edits_reset": (c_int, [c_char_p]),
    "conr_clustering_about": (None, [_handle, POINTER(CClusteringInfo)]),
    "conr_clustering_embed": (c_int, [_handle, _handle, _array, c_int64, c_int64, _array]),
    "conr_clustering_images": (c_int, [_handle, _handle, _handle, POINTER(POINTER(c_float)),
                                       POINTER(c_int64)]),
    "conr_clustering_assign": (c_int, [_handle, _handle, _array, c_int64, _array, _array, _array]),
    "conr_embed": (c_int, [_handle, _handle, _handle, POINTER(POINTER(c_float)), POINTER(c_int64),
                           POINTER(c_int64)]),
}


def _find() -> str:
    """CONR_LIBRARY, else the library in the package, in the checkout's build, or of the system."""
    here = Path(__file__).resolve().parent
    checkout = here.parents[1]
    given = os.environ.get("CONR_LIBRARY")
    if given:
        return given
    if (here / "libconr.so").exists():
        return str(here / "libconr.so")
    if (checkout / "include" / "conr.h").exists() and (checkout / "build" / "libconr.so").exists():
        return str(checkout / "build" / "libconr.so")
    found = ctypes.util.find_library("conr")
    if not found:
        raise ImportError("libconr: not found; run 'pip install .', or 'make' in a checkout, or "
                          "set CONR_LIBRARY to the file")
    return found


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(_find())
    for name, (result, arguments) in _calls.items():
        call = getattr(library, name)
        call.restype, call.argtypes = result, arguments
    return library


lib = _load()

_errors = {-1: InvalidError, -2: NoMemoryError, -3: FileError, -4: FormatError, -5: DeviceError,
           -6: NumberError, -7: Stopped}


def check(code: int) -> int:
    """Returns the result of a call, or raises its failure as an exception."""
    if code >= 0:
        return code
    error = _errors.get(code, Error)(lib.conr_error().decode(errors="replace"))
    error.code = code
    raise error


# ---- contexts ------------------------------------------------------------------------------------

_idle: Dict[Tuple[str, int], List[c_void_p]] = {}
_lock = threading.Lock()
_forked = False


def _after_fork() -> None:
    """A child has no threads of its parent, and OpenMP would wait for them: use one thread."""
    global _lock, _forked
    _lock, _forked = threading.Lock(), True
    _idle.clear()


os.register_at_fork(after_in_child=_after_fork)


class Progress(NamedTuple):
    """Progress of long work; epoch to seconds_left are 0 outside of training steps."""

    stage: str
    done: int
    total: int
    message: Optional[str] = None
    epoch: int = 0
    epochs: int = 0
    loss: float = 0.0
    lr: float = 0.0
    images_per_s: float = 0.0
    seconds_left: float = 0.0


def _progress_of(p: CProgress) -> Progress:
    return Progress((p.stage or b"").decode(), p.done, p.total,
                    p.message.decode(errors="replace") if p.message else None, p.epoch, p.epochs,
                    p.loss, p.lr, p.images_per_s, p.seconds_left)


class _Stop:
    """Whether running work should stop: Ctrl-C was pressed, or a callback raised."""

    def __init__(self, tell: Optional[Callable[[Progress], Any]]) -> None:
        self.tell = tell
        self.reason: Optional[BaseException] = None

    def interrupt(self, number: int, frame: Any) -> None:
        self.reason = self.reason or KeyboardInterrupt()

    def on_progress(self, p: Any, user: Any) -> int:
        try:
            if self.tell and not self.reason:
                self.tell(_progress_of(p.contents))
        except BaseException as e:  # no exception may pass through C
            self.reason = e
        return int(self.reason is not None)

    def on_count(self, done: int, total: int, user: Any) -> int:
        return int(self.reason is not None)


class Context:
    """An open device, used by one thread; created by `context`."""

    def __init__(self, handle: c_void_p, stop: _Stop) -> None:
        self.handle = handle
        self.on_count = OnCount(stop.on_count)

    @property
    def device(self) -> str:
        """A description, e.g. "cpu, 2 threads"."""
        return str(lib.conr_device(self.handle).decode())


@contextlib.contextmanager
def context(device: str = "cpu", threads: int = 0,
            tell: Optional[Callable[[Progress], Any]] = None) -> Iterator[Context]:
    """A context that no other thread uses, newly opened or reused.

    Inside it, Ctrl-C stops the work in C at its next progress report; so does an exception that
    `tell` raises.
    """
    threads = 1 if _forked else integer(threads, "threads")
    key = (device, threads)
    with _lock:
        ready = _idle.get(key)
        handle = ready.pop() if ready else None
    if handle is None:
        handle = c_void_p()
        check(lib.conr_open(text(device, "device"), threads, byref(handle)))
    stop = _Stop(tell)
    on_progress = OnProgress(stop.on_progress)
    # Python's own handler would raise inside the callback, where it cannot be caught
    ours = (threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    if ours:
        signal.signal(signal.SIGINT, stop.interrupt)
    lib.conr_set_progress(handle, on_progress, None)
    try:
        yield Context(handle, stop)
    except Stopped as e:
        if stop.reason is None:
            raise
        raise stop.reason from e
    else:
        if stop.reason is not None:  # too late to stop anything
            raise stop.reason
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        lib.conr_set_progress(handle, OnProgress(), None)
        with _lock:
            _idle.setdefault(key, []).append(handle)


def check_output(out: Any, source: Any = None) -> None:
    """Raises InvalidError if writing to `out` would replace the file `source`, or one of a run."""
    check(lib.conr_check_output(text(out, "path"),
                                None if source is None else text(source, "path")))


def version() -> str:
    """The version of the library in use, e.g. "0.1.0"."""
    return str(lib.conr_version().decode())
