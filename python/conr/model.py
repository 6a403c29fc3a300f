"""Model: what a run has learned.  It embeds images and assigns them to clusters."""
from __future__ import annotations

import warnings
import weakref
from ctypes import POINTER, byref, c_float, c_int64, c_void_p
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from ._arrays import taken
from ._images import Images, opened
from ._library import CModelInfo, FileError, check, context, lib, text
from ._progress import TellProgress, reporter
from ._settings import PathLike
from .features import assign, boundary
from .safetensors import read_safetensors


class TrainingWarning(UserWarning):
    """Something about a training or its images looks wrong."""


def warn_skipped(images: Images) -> None:
    """Warns about images that could not be read."""
    after = images.about()
    if after["skipped"]:
        warnings.warn(f"{after['skipped']} of {after['n'] + after['skipped']} images cannot be "
                      f"read and are left out; the first: {after['first_skipped']}",
                      TrainingWarning, stacklevel=4)


class Model:
    """A trained model, from `load` or from `DeepCluster.model_`.  Calling it is `embed`."""

    def __init__(self, path: PathLike, *, device: str = "auto", threads: int = 0) -> None:
        self.path, self.device, self.threads = Path(path), device, threads
        handle, info = c_void_p(), CModelInfo()
        with context("cpu", threads) as c:
            check(lib.conr_model_open(c.handle, text(self.path, "path"), byref(handle)))
        self._handle = handle
        self._scratch: Any = None
        self._close = weakref.finalize(self, lib.conr_model_close, handle)
        lib.conr_model_about(handle, byref(info))
        self.encoder: str = info.encoder.decode()
        self.framework: str = info.framework.decode()
        self.size, self.channels, self.features = info.size, info.channels, info.features
        self.clusters: int = info.clusters
        #: float32 [K, d], or None if the model came without centroids
        self.centroids: Optional[np.ndarray] = None
        if info.clusters:
            self.centroids = np.ctypeslib.as_array(
                info.centroids, shape=(info.clusters, info.features)).copy()

    def __reduce__(self) -> Any:
        return _reopen, (str(self.path), self.device, self.threads)

    def embed(self, images: Any, *, progress: TellProgress = False) -> np.ndarray:
        """Features of images, float32 [n, d], rows of length 1.

        images: a path (folder, data set, .npy, list), a list of paths, or an array or tensor of
        uint8, [n, h, w] or [n, h, w, 3].  Images that cannot be read are left out, with a warning.
        """
        return self._embed(images, progress)[0]

    __call__ = transform = embed

    def _embed(self, images: Any, progress: TellProgress = False) -> Tuple[np.ndarray, List[str]]:
        data, n, d = POINTER(c_float)(), c_int64(), c_int64()
        tell, close = reporter(progress)
        try:
            with context(self.device, self.threads, tell) as c, opened(c, images) as m:
                check(lib.conr_embed(c.handle, self._handle, m.handle, byref(data), byref(n),
                                     byref(d)))
                features = taken(data, n.value, d.value)
                warn_skipped(m)
                return features, m.paths()
        finally:
            close()

    def predict(self, images: Any) -> np.ndarray:
        """The cluster of each image, int32 [n]; of edited clusters (docs/open.md) as edited."""
        edited = self._edited()
        return edited.predict(images) if edited else self._assign(images)[1]

    def _edited(self) -> Any:
        """The run as somebody edited it; None: nobody did."""
        from .clustering import Clustering

        if not (self.path / "edits.json").exists():
            return None
        return Clustering(self.path, device=self.device, threads=self.threads)

    def assign(self, images: Any) -> Dict[str, Any]:
        """Path, cluster, distance (1 - cos to the centroid) and boundary ratio of each image, as a
        dict of columns for pandas.DataFrame."""
        edited = self._edited()
        if edited:
            table: Dict[str, Any] = edited.assign(images)
            return table
        features, labels, distances, paths = self._assign(images)
        return {"path": paths, "cluster": labels, "distance": distances,
                "boundary": boundary(features, self.centroids, labels)}

    def _assign(self, images: Any) -> Tuple[np.ndarray, np.ndarray, np.ndarray, List[str]]:
        if self.centroids is None:
            raise FileError(f"{self.path}: no centroids next to the model; give a run folder")
        features, paths = self._embed(images)
        labels, distances = assign(features, self.centroids)
        return features, labels, distances, paths

    def state_dict(self, part: str = "", *, torch: Optional[bool] = None) -> Dict[str, Any]:
        """The weights by name.

        part: '' for all, under the names of the file; 'encoder' or 'projector' for one of them,
        without the prefix: for the encoder, these are torchvision's names.  torch: True for tensors
        (the default if torch is installed), False for NumPy arrays.
        """
        path = self.path / "model.safetensors" if self.path.is_dir() else self.path
        tensors, _ = read_safetensors(path)
        prefix = part + "." if part else ""
        chosen = {name[len(prefix):]: a for name, a in tensors.items() if name.startswith(prefix)}
        if torch is False:
            return dict(chosen)
        try:
            import torch as module
        except ImportError:
            if torch:
                raise
            return dict(chosen)
        return {name: module.from_numpy(a.copy()) for name, a in chosen.items()}

    def notes(self) -> Dict[str, str]:
        """The metadata of the model file: encoder, stem, width, size, mean, deviation, ..."""
        return read_safetensors(self.path / "model.safetensors" if self.path.is_dir()
                                else self.path)[1]

    def __repr__(self) -> str:
        return (f"<conr.Model {self.path}: {self.encoder}, {self.size} x {self.size} x "
                f"{self.channels} -> {self.features}, {self.clusters} clusters>")


def _reopen(path: str, device: str, threads: int) -> Model:
    return Model(path, device=device, threads=threads)


def load(path: PathLike, *, device: str = "auto", threads: int = 0) -> Any:
    """The model of a run folder, or of a model.safetensors file; a Clustering if the run was made
    from features."""
    if check(lib.conr_is_features_run(text(path, "path"))):
        from .clustering import Clustering

        return Clustering(path, device=device, threads=threads)
    return Model(path, device=device, threads=threads)
