"""Deep clustering of images: DeepCluster trains, Model is what a run has learned."""
from __future__ import annotations

import csv
import json
import os
import re
import shutil
import sys
import tempfile
import time
import warnings
import weakref
from ctypes import POINTER, byref, c_float, c_int64, c_void_p, create_string_buffer
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import numpy as np

from . import _html
from ._arrays import taken
from ._images import Images, is_path, opened, thumbnails
from ._library import (CModelInfo, CScores, CSettingInfo, CTrainResult, Context, Error, FileError,
                       InvalidError, OnChoice, Progress, check, context, lib)
from .features import assign, boundary
from .safetensors import read_safetensors, write_safetensors

PathLike = Union[str, "os.PathLike[str]"]
TellProgress = Union[bool, Callable[[Progress], Any]]


class TrainingWarning(UserWarning):
    """Something about a training or its images looks wrong."""


# ---- settings ------------------------------------------------------------------------------------


def settings() -> List[Dict[str, str]]:
    """Everything that can be set about a training: key, default, allowed, help."""
    out: List[Dict[str, str]] = []
    i = CSettingInfo()
    while lib.conr_setting(len(out), byref(i)):
        out.append({"key": i.key.decode(), "default": i.initial.decode(),
                    "allowed": i.allowed.decode(), "help": i.help.decode()})
    return out


def _recipe_folder() -> Path:
    inside = Path(__file__).resolve().parent / "recipes"
    return inside if inside.is_dir() else inside.parents[2] / "recipes"


def recipes() -> List[str]:
    """Names of the recipes that come with the package."""
    return sorted(p.stem for p in _recipe_folder().glob("*.yaml"))


class _Settings:
    """A conr_settings, as a context manager."""

    def __enter__(self) -> "_Settings":
        self.handle = c_void_p()
        check(lib.conr_settings_new(byref(self.handle)))
        return self

    def __exit__(self, *exception: Any) -> None:
        lib.conr_settings_free(self.handle)

    def read(self, recipe: PathLike) -> None:
        path = Path(recipe)
        if not path.is_file() and os.fspath(recipe) in recipes():
            path = _recipe_folder() / f"{recipe}.yaml"
        check(lib.conr_settings_read(self.handle, os.fsencode(path)))

    def set(self, key: str, value: Any) -> None:
        text = str(value).lower() if isinstance(value, (bool, np.bool_)) else str(value)
        check(lib.conr_settings_set(self.handle, key.encode(), text.encode()))

    def get(self, key: str) -> str:
        out = create_string_buffer(4096)
        check(lib.conr_settings_get(self.handle, key.encode(), out, len(out)))
        return out.value.decode()


def seconds(budget: Any) -> float:
    """90, "90s", "10m", "2h" or "1d" in seconds."""
    if budget is None:
        return 0.0
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([smhd]?)\s*", str(budget))
    if not found or float(found[1]) <= 0:
        raise InvalidError(f"budget {budget!r}: not a time; give seconds, or '90s', '10m', '2h'")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


# ---- progress ------------------------------------------------------------------------------------


class _Bar:
    """Progress through tqdm where it is there, else a line a second on stderr."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.stage, self.shown = "", 0.0
        try:
            from tqdm.auto import tqdm
        except ImportError:
            tqdm = None
        self.tqdm = tqdm

    def __call__(self, p: Progress) -> None:
        if p.message:
            if self.tqdm:
                self.tqdm.write(p.message, file=sys.stderr)
            else:
                self._line(p.message, "\n")
            return
        numbers = f"loss {p.loss:.4f}, {p.images_per_s:.0f} images/s" if p.epoch else ""
        if self.tqdm:
            if self.bar is None or self.stage != p.stage:
                self.close()
                self.bar, self.stage = self.tqdm(total=p.total, desc=p.stage, leave=False), p.stage
            self.bar.n = p.done
            self.bar.set_postfix_str(numbers)
        elif time.monotonic() - self.shown >= 1:
            self.shown = time.monotonic()
            left = f", {p.seconds_left:.0f} s left" if p.seconds_left > 0 else ""
            self._line(f"{p.stage} {p.done}/{p.total} {numbers}{left}", "")

    def _line(self, text: str, end: str) -> None:
        if end or sys.stderr.isatty():
            print(f"\r{text:<79}" if sys.stderr.isatty() else text, end=end, file=sys.stderr,
                  flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
        elif not self.tqdm and self.shown and sys.stderr.isatty():
            print(f"\r{'':<79}\r", end="", file=sys.stderr, flush=True)


def _teller(progress: TellProgress) -> Tuple[Optional[Callable[[Progress], Any]],
                                              Callable[[], None]]:
    if callable(progress):
        return progress, lambda: None
    if not progress:
        return None, lambda: None
    bar = _Bar()
    return bar, bar.close


def _warn_skipped(images: Images) -> None:
    after = images.about()
    if after["skipped"]:
        warnings.warn(f"{after['skipped']} of {after['n'] + after['skipped']} images cannot be "
                      f"read and are left out; the first: {after['first_skipped']}",
                      TrainingWarning, stacklevel=4)


# ---- a trained model -----------------------------------------------------------------------------


class Model:
    """What a run has learned: embeds and assigns images.  From `load`, or a DeepCluster's `model_`.

    Calling it is `embed`.
    """

    def __init__(self, path: PathLike, *, device: str = "auto", threads: int = 0) -> None:
        self.path, self.device, self.threads = Path(path), device, threads
        handle, info = c_void_p(), CModelInfo()
        with context("cpu", threads) as c:
            check(lib.conr_model_open(c.handle, os.fsencode(self.path), byref(handle)))
        self._handle = handle
        self._scratch: Any = None
        self._close = weakref.finalize(self, lib.conr_model_close, handle)
        lib.conr_model_about(handle, byref(info))
        self.encoder: str = info.encoder.decode()
        self.framework: str = info.framework.decode()
        self.size, self.channels, self.features = info.size, info.channels, info.features
        self.clusters: int = info.clusters
        #: float32 [K, d], or None where the model came without
        self.centroids: Optional[np.ndarray] = None
        if info.clusters:
            self.centroids = np.ctypeslib.as_array(
                info.centroids, shape=(info.clusters, info.features)).copy()

    def __reduce__(self) -> Any:
        return _reopen, (str(self.path), self.device, self.threads)

    def embed(self, images: Any, *, progress: TellProgress = False) -> np.ndarray:
        """Features of images, float32 [n, d], rows of length 1.

        images: a path (folder, data set, .npy, list), a list of paths, or an array or tensor of
        uint8, [n, h, w] or [n, h, w, 3].  Images that cannot be read have no row and are warned of.
        """
        return self._embed(images, progress)[0]

    __call__ = transform = embed

    def _embed(self, images: Any, progress: TellProgress = False) -> Tuple[np.ndarray, List[str]]:
        data, n, d = POINTER(c_float)(), c_int64(), c_int64()
        tell, close = _teller(progress)
        try:
            with context(self.device, self.threads, tell) as c, opened(c, images) as m:
                check(lib.conr_embed(c.handle, self._handle, m.handle, byref(data), byref(n),
                                     byref(d)))
                features = taken(data, n.value, d.value)
                _warn_skipped(m)
                return features, m.paths()
        finally:
            close()

    def predict(self, images: Any) -> np.ndarray:
        """The cluster of each image, int32 [n]."""
        return self._assign(images)[1]

    def assign(self, images: Any) -> Dict[str, Any]:
        """path, cluster, distance (1 - cos to the centroid) and boundary ratio of each image: a
        dict of columns, as pandas.DataFrame takes them."""
        features, labels, distances, paths = self._assign(images)
        return {"path": paths, "cluster": labels, "distance": distances,
                "boundary": boundary(features, self.centroids, labels)}

    def _assign(self, images: Any) -> Tuple[np.ndarray, np.ndarray, np.ndarray, List[str]]:
        if self.centroids is None:
            raise FileError(f"{self.path}: no centroids beside the model; give a run's folder")
        features, paths = self._embed(images)
        labels, distances = assign(features, self.centroids)
        return features, labels, distances, paths

    def state_dict(self, part: str = "", *, torch: Optional[bool] = None) -> Dict[str, Any]:
        """The weights by name.

        part: '' for all, as the file has them; 'encoder' or 'projector' for one, its prefix taken
        off: those of the encoder are then torchvision's names.  torch: tensors (the default where
        torch is installed) or NumPy arrays.
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
        """What the model's file says about it: encoder, stem, width, size, mean, deviation, ..."""
        return read_safetensors(self.path / "model.safetensors" if self.path.is_dir()
                                else self.path)[1]

    def __repr__(self) -> str:
        return (f"<conr.Model {self.path}: {self.encoder}, {self.size} x {self.size} x "
                f"{self.channels} -> {self.features}, {self.clusters} clusters>")


def _reopen(path: str, device: str, threads: int) -> Model:
    return Model(path, device=device, threads=threads)


def load(path: PathLike, *, device: str = "auto", threads: int = 0) -> Model:
    """The model of a run's folder, or of a model.safetensors alone."""
    return Model(path, device=device, threads=threads)


class _Scratch:
    """A temporary folder that goes with the last of those who hold this."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="conr-run-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def __reduce__(self) -> Any:
        raise InvalidError("pickle: the run is in a temporary folder; give out, or save it and "
                           "conr.load that")


# ---- training ------------------------------------------------------------------------------------


class DeepCluster:
    """Learns from images without labels, and clusters them.

    Parameters
    ----------
    n_clusters : int or 'auto'
        K; 'auto' estimates it after stage 1.
    budget : None, a number of seconds, or '90s', '10m', '2h'
        Epochs are chosen so that the training takes about this long.
    recipe : None, a name of conr.recipes(), or a file
        Settings.  None: chosen from the images and the device, as `conr cluster` does.
    out : None or a folder
        The run's folder.  None: a temporary one; `save` keeps it.
    init : None, a safetensors file, or a state dict
        The encoder's first weights under torchvision's names.
    device, threads, seed
        'auto', 'cpu' or 'cuda'; 0 for all cores; the same seed gives the same bits.
    progress : bool or callable
        True: a tqdm bar where tqdm is there, else a line on stderr.  A callable is given
        conr.Progress records; what it raises stops the training.
    **settings
        Any of conr.settings(), e.g. epochs=100, k1=20.

    Attributes
    ----------
    labels_ : int32 [n]; paths_ : list; distances_, boundary_ : float32 [n]
    embedding_ : float32 [n, d]; cluster_centers_ : float32 [K, d]
    scores_ : dict, empty without labels; chosen_ : list of settings chosen, and why
    log_ : list of dict, one a line of the log; model_ : Model; run_ : Path
    """

    def __init__(self, n_clusters: Union[int, str] = 10, *, budget: Any = None,
                 recipe: Optional[PathLike] = None, out: Optional[PathLike] = None,
                 init: Any = None, device: str = "auto", threads: int = 0,
                 seed: Optional[int] = None, progress: TellProgress = True,
                 **settings: Any) -> None:
        self.n_clusters, self.budget, self.recipe, self.out = n_clusters, budget, recipe, out
        self.init, self.device, self.threads, self.seed = init, device, threads, seed
        self.progress, self.settings = progress, settings
        self._scratch: Any = None  # the temporary folder, where there is no out
        known = {s["key"] for s in _all_settings()}
        for key in settings:
            if key not in known:
                raise InvalidError(f"{key}: no such setting; conr.settings() lists them")

    _own = ("n_clusters", "budget", "recipe", "out", "init", "device", "threads", "seed",
            "progress")

    # -- parameters, as scikit-learn's estimators have them

    def get_params(self, deep: bool = True) -> Dict[str, Any]:
        return {**{name: getattr(self, name) for name in self._own}, **self.settings}

    def set_params(self, **params: Any) -> "DeepCluster":
        DeepCluster(**{**self.get_params(), **params})  # refuses what is not known
        for name, value in params.items():
            if name in self._own:
                setattr(self, name, value)
            else:
                self.settings[name] = value
        return self

    # -- fitting

    def fit(self, X: Any, y: Any = None, *, resume: bool = False) -> "DeepCluster":
        """Trains on images and clusters them.

        X: a path (folder of images, data set, .npy, list), a list of paths, or uint8 images
        [n, h, w] or [n, h, w, 3].  y is not looked at.  Ctrl-C stops cleanly and saves;
        resume=True goes on where the last fit, or the run in `out`, was stopped.
        """
        tell, close = _teller(self.progress)
        with tempfile.TemporaryDirectory(prefix="conr-init-") as scratch, _Settings() as s:
            run = self._folder(resume)
            try:
                with context(self.device, self.threads, tell) as c:
                    self._train(c, s, X, run, resume, scratch)
            finally:
                close()
        self._source = X
        self._collect(run)
        return self

    def _folder(self, resume: bool) -> Path:
        if self.out is not None:
            run = Path(self.out)
            run.parent.mkdir(parents=True, exist_ok=True)
            if not resume and (run / "options.yaml").exists():
                raise InvalidError(f"{run}: holds a run already; give another out, fit with "
                                   "resume=True, or conr.load it")
            return run
        if resume and self._scratch is None:
            raise InvalidError("resume: there is no run to go on with; give out, or fit first")
        if not resume:
            self._scratch = _Scratch()
        return self._scratch.path / "run"

    def _train(self, c: Context, s: _Settings, X: Any, run: Path, resume: bool,
               scratch: str) -> None:
        o, result = lib.conr_train_defaults(), CTrainResult()
        o.out, o.resume, o.budget = os.fsencode(run), int(resume), seconds(self.budget)
        init = self._init_file(scratch)
        o.init = os.fsencode(init) if init else None
        if resume:
            check(lib.conr_settings_read(s.handle, os.fsencode(run / "options.yaml")))
        else:
            self._fill(s)
        with opened(c, X, split=s.get("split"), classes=s.get("classes"),
                    coarse=s.get("labels") == "coarse",
                    long_tail=float(s.get("long_tail"))) as m:
            self.chosen_ = [] if resume or self.recipe is not None else self._choose(c, s, m,
                                                                                     o.budget)
            check(lib.conr_train(c.handle, m.handle, s.handle, byref(o), byref(result)))
            _warn_skipped(m)
        self.result_ = {f[0]: getattr(result, f[0]) for f in CTrainResult._fields_
                        if f[0] not in ("scores", "labeled")}
        self.scores_: Dict[str, Any] = {}
        if result.labeled:
            self.scores_ = {f[0]: getattr(result.scores, f[0]) for f in CScores._fields_}

    def _fill(self, s: _Settings) -> None:
        """The recipe, then K and the seed, then every setting given."""
        if self.recipe is not None:
            s.read(self.recipe)
        s.set("clusters", 0 if self.n_clusters == "auto" else self.n_clusters)
        if self.seed is not None:
            s.set("seed", self.seed)
        for key in sorted(self.settings, key=lambda key: key != "preset"):  # others overrule it
            s.set(key, self.settings[key])

    def _choose(self, c: Context, s: _Settings, m: Images,
                budget: float) -> List[Dict[str, Optional[str]]]:
        chosen: List[Dict[str, Optional[str]]] = []

        def on_choice(key: bytes, value: bytes, why: Optional[bytes], user: Any) -> None:
            chosen.append({"key": key.decode(), "value": value.decode(),
                           "why": why.decode() if why else "as given"})

        check(lib.conr_settings_choose(c.handle, m.handle, budget,
                                       " ".join(self.settings).encode(), s.handle,
                                       OnChoice(on_choice), None))
        return chosen

    def _init_file(self, scratch: str) -> Optional[str]:
        if self.init is None or is_path(self.init):
            return self.init
        path = os.path.join(scratch, "init.safetensors")
        write_safetensors(path, self.init)
        return path

    def _collect(self, run: Path) -> None:
        """What the run's folder says."""
        self.run_ = run
        with open(run / "labels.csv", newline="", errors="surrogateescape") as f:
            rows = list(csv.DictReader(f))
        self.paths_ = [r["path"] for r in rows]
        self.labels_ = np.array([r["cluster"] for r in rows], np.int32)
        self.distances_ = np.array([r["distance"] for r in rows], np.float32)
        self.boundary_ = np.array([r["boundary"] for r in rows], np.float32)
        self.embedding_ = np.load(run / "embeddings.npy")
        self.model_ = load(run, device=self.device, threads=self.threads)
        self.model_._scratch = self._scratch  # a temporary folder lives as long as either
        self.cluster_centers_ = self.model_.centroids
        self.n_clusters_ = self.model_.clusters
        self.log_ = read_log(run)
        for text in dict.fromkeys(r["warning"] for r in self.log_ if "warning" in r):
            warnings.warn(text.replace("warning: ", "", 1), TrainingWarning, stacklevel=3)

    # -- using

    def _fitted(self) -> Model:
        if not hasattr(self, "model_"):
            raise InvalidError("DeepCluster: not fitted yet; call fit first")
        return self.model_

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """fit, then labels_."""
        return self.fit(X).labels_

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """fit, then the features of the same images."""
        return self.fit(X).embedding_

    def predict(self, X: Any) -> np.ndarray:
        """Clusters of images, int32 [n]."""
        return self._fitted().predict(X)

    def transform(self, X: Any) -> np.ndarray:
        """Features of images, float32 [n, d], rows of length 1."""
        return self._fitted().embed(X)

    embed = transform

    def save(self, folder: PathLike) -> Path:
        """Copies the run's folder; conr.load(folder) gives the model back."""
        self._fitted()
        target = Path(folder)
        if target.exists() and any(target.iterdir()):
            raise FileError(f"{target}: is not empty; give a new folder")
        shutil.copytree(self.run_, target, dirs_exist_ok=True)
        return target

    def report(self, path: PathLike) -> Path:
        """Writes one HTML file that needs nothing else: what was done, and every cluster.

        The run's own report.html where the library has made one; else a short page with each
        cluster's most central images, the scores and the settings.
        """
        self._fitted()
        if (self.run_ / "report.html").exists():
            return Path(shutil.copyfile(self.run_ / "report.html", path))
        options = {}
        for line in (self.run_ / "options.yaml").read_text(errors="replace").splitlines():
            key, separator, value = line.partition(": ")
            if separator and not line.startswith("#"):
                options[key] = value
        target = Path(path)
        target.write_text(_html.page("Clusters", self._clusters_html(most=10_000, each=16),
                                     options), encoding="utf-8")
        return target

    def __repr__(self) -> str:
        said = [repr(self.n_clusters)]
        said += [f"{k}={v!r}" for k, v in self.get_params().items()
                 if k != "n_clusters" and v is not None and (k, v) not in
                 (("device", "auto"), ("threads", 0), ("progress", True))
                 and not (k == "init" and not is_path(v))]
        return f"DeepCluster({', '.join(said)})"

    def _repr_html_(self) -> str:
        if not hasattr(self, "model_"):
            return f"<pre>{repr(self)}</pre>"
        return self._clusters_html(most=20, each=8)

    def _facts(self) -> str:
        text = f"{len(self.labels_):,} images in {self.n_clusters_} clusters"
        if self.scores_:
            text += "; " + ", ".join(f"{k.upper()} {self.scores_[k]:.4f}"
                                     for k in ("nmi", "acc", "ari"))
        return text + f"; {self.result_['epochs']} epochs in {self.result_['seconds']:.0f} s"

    def _clusters_html(self, most: int, each: int, size: int = 32) -> str:
        shown = range(min(self.n_clusters_, most))
        central = [[int(i) for i in members[np.argsort(self.distances_[members],
                                                       kind="stable")[:each]]]
                   for members in (np.flatnonzero(self.labels_ == k) for k in shown)]
        wanted = [i for row in central for i in row]
        try:
            with context("cpu", self.threads) as c:
                pixels = thumbnails(c, self._source, self.paths_, wanted, size)
        except (Error, OSError):  # the images may have gone since
            pixels = None
        seen = iter(pixels if pixels is not None else [])
        return _html.table(self._facts(), [
            {"cluster": k, "size": int((self.labels_ == k).sum()),
             "images": "".join(_html.image(next(seen), self.paths_[i]) for i in central[k])
             if pixels is not None else ""}
            for k in shown])


_settings_list: List[Dict[str, str]] = []


def _all_settings() -> List[Dict[str, str]]:
    if not _settings_list:
        _settings_list.extend(settings())
    return _settings_list


def read_log(run: PathLike) -> List[Dict[str, Any]]:
    """A run's log.jsonl, one dict a line; pandas.DataFrame(read_log(run)) is a table."""
    out = []
    for line in (Path(run) / "log.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            out.append(json.loads(line))
        except ValueError:  # the last line of a run that was cut short
            continue
    return out
