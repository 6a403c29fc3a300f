"""DeepCluster: learns from images without labels and clusters them, in scikit-learn's style."""
from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import tempfile
import warnings
import weakref
from ctypes import byref, c_double, create_string_buffer
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

import numpy as np

from . import _html
from ._arrays import address, matrix
from ._encode import encode, is_features
from ._images import Images, is_path, opened, thumbnails
from ._library import (NOTE_SIZE, CBaseline, CBaselineSide, CFeaturesResult, CReportOptions,
                       CScores, CTrainResult, Context, Error, FileError, InvalidError, OnChoice,
                       check, check_output, context, lib, text)
from ._made import features_options, opened_encoder, refuse_training, weights_file
from ._progress import TellProgress, reporter
from ._settings import PathLike, Settings, all_settings, recipes, seconds, settings
from .edits import open_run
from .model import Model, TrainingWarning, _reopen, load, warn_skipped
from .safetensors import write_safetensors

__all__ = ["DeepCluster", "Model", "TrainingWarning", "load", "read_log", "recipes", "settings"]


def _side(side: CBaselineSide, labeled: bool) -> Dict[str, float]:
    out = {f[0]: getattr(side, f[0]) for f in CBaselineSide._fields_ if f[0] != "scores"}
    if labeled:
        out.update({k: getattr(side.scores, k) for k in ("nmi", "acc", "ari")})
    return out


def _baseline(b: CBaseline) -> Dict[str, Any]:
    """The training beside the built-in descriptor; empty without."""
    if b.images == 0:
        return {}
    return {"images": b.images, "descriptor_wins": bool(b.descriptor_wins),
            "training": _side(b.training, b.labeled), "descriptor": _side(b.descriptor, b.labeled)}


class _Scratch:
    """A temporary folder that is removed together with the last object that holds this one."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="conr-run-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def __reduce__(self) -> Any:
        raise InvalidError("pickle: the run is in a temporary folder; give out, or save it and "
                           "conr.load the copy")


class DeepCluster:
    """Learns from images without labels and clusters them.

    Parameters
    ----------
    n_clusters : int or 'auto'
        Number of clusters K; 'auto' estimates it after stage 1.
    budget : None, a number of seconds, or '90s', '10m', '2h'
        The number of epochs is chosen so that training takes about this long.  On a CPU, where a
        short training may be worth little, the result is the better of the training and the
        built-in descriptor; if it is the descriptor's, a TrainingWarning says so, and the training
        is in run_ / 'training'.
    recipe : None, a name from conr.recipes(), or a file
        The settings.  None: chosen to suit the images and the device, as `conr cluster` does.
    out : None or a folder
        The run folder.  None: a temporary one; `save` copies it.
    init : None, a safetensors file, or a state dict
        Initial weights of the encoder, under torchvision's names.
    device, threads, seed
        'auto', 'cpu', 'cuda' or 'cuda:N'; 0 for all cores; the same seed gives the same bits.
    refine, method
        For features: None for the defaults of `conr cluster --features`, else 'conaff', 'none' or
        'auto', and 'kmeans', 'graph' or 'auto'.
    progress : bool or callable
        True: a tqdm bar if tqdm is installed, else a line on stderr.  A callable gets
        conr.Progress records; if it raises, training stops.
    **settings
        Any setting from conr.settings(), e.g. epochs=100, k1=20.  encoder may also be somebody's
        trained network, whose features are then clustered (conr.encode says how it is called): a
        callable, a torch.nn.Module or an onnxruntime session; size, 224 unless given, is the side
        of the images it sees.  Or the safetensors file of a pretrained network that conr runs
        itself (docs/encoders.md), which knows its own size; new images then go through it, too.

    Attributes
    ----------
    labels_ : int32 [n]; paths_ : list; distances_, boundary_ : float32 [n]
    cluster_names_ : dict, the names of clusters that somebody named (open, conr.Edits)
    embedding_ : float32 [n, d]; cluster_centers_ : float32 [K, d]
    baseline_ : dict, the clusters of the built-in descriptor beside these, and which are better
    scores_ : dict, empty without labels; chosen_ : list of the settings chosen, with reasons
    log_ : list of dict, one per line of the log; model_ : Model; run_ : Path
    """

    def __init__(self, n_clusters: Union[int, str] = 10, *, budget: Any = None,
                 recipe: Optional[PathLike] = None, out: Optional[PathLike] = None,
                 init: Any = None, device: str = "auto", threads: int = 0,
                 seed: Optional[int] = None, progress: TellProgress = True,
                 refine: Optional[str] = None, method: Optional[str] = None,
                 **settings: Any) -> None:
        self.n_clusters, self.budget, self.recipe, self.out = n_clusters, budget, recipe, out
        self.init, self.device, self.threads, self.seed = init, device, threads, seed
        self.progress, self.settings = progress, settings
        self.refine, self.method = refine, method
        self._scratch: Any = None  # the temporary folder, if there is no out
        known = {s["key"] for s in all_settings()}
        for key in settings:
            if key not in known:
                raise InvalidError(f"{key}: no such setting; conr.settings() lists them")

    _own = ("n_clusters", "budget", "recipe", "out", "init", "device", "threads", "seed",
            "progress", "refine", "method")

    # -- parameters, as in scikit-learn

    def get_params(self, deep: bool = True) -> Dict[str, Any]:
        return {**{name: getattr(self, name) for name in self._own}, **self.settings}

    def set_params(self, **params: Any) -> "DeepCluster":
        DeepCluster(**{**self.get_params(), **params})  # refuses unknown names
        for name, value in params.items():
            if name in self._own:
                setattr(self, name, value)
            else:
                self.settings[name] = value
        return self

    # -- fitting

    def fit(self, X: Any, y: Any = None, *, images: Any = None,
            resume: bool = False) -> "DeepCluster":
        """Trains on images and clusters them; or clusters features, without a training.

        X: a path (folder of images, data set, .npy, list), a list of paths, or uint8 images
        [n, h, w] or [n, h, w, 3].  y is ignored.  Ctrl-C stops cleanly and saves; resume=True
        continues where the last fit, or the run in `out`, was stopped.

        X may also be features: numbers [n, d], or with `images` the path of a .npy file.  images:
        whose features they are, row by row, as X above; None: the report has no pictures.
        """
        if self._weights() is not None:
            if images is not None or is_features(X):
                raise InvalidError("encoder: given with features; leave one of them out")
            return self._fit_features(None, X, resume)
        if self._encoder() is not None and images is None:
            X, images = self._encode(X)
        if images is not None or is_features(X):
            return self._fit_features(X, images, resume)
        for name in ("refine", "method"):
            if getattr(self, name) is not None:
                raise InvalidError(f"{name}: is for features; fit(features), or leave it out")
        tell, close = reporter(self.progress)
        with tempfile.TemporaryDirectory(prefix="conr-init-") as scratch, Settings() as s:
            run = self._folder(resume)
            try:
                with context(self.device, self.threads, tell) as c:
                    self._train(c, s, X, run, resume, scratch)
            finally:
                close()
        self._source = X
        self._collect(run)
        return self

    # -- features in place of a training

    def _encoder(self) -> Any:
        """Somebody's network, in place of the name of one of ours."""
        given = self.settings.get("encoder")
        return None if given is None or is_path(given) else given

    def _weights(self) -> Optional[str]:
        """The file of a pretrained network, likewise."""
        return weights_file(self.settings.get("encoder"))

    def _encode(self, X: Any) -> Any:
        return encode(self._encoder(), X, size=self.settings.get("size", 224),
                      threads=self.threads)

    def _fit_features(self, X: Any, images: Any, resume: bool) -> "DeepCluster":
        """X: None for those of the file that encoder names."""
        x = None if X is None else matrix(np.load(X, allow_pickle=False) if is_path(X) else X)
        refuse_training(self, resume)
        run = self._folder(False)
        tell, close = reporter(self.progress)
        o, result = features_options(self), CFeaturesResult()
        o.out, o.from_ = text(run, "out"), text(X, "features") if is_path(X) else None
        weights = self._weights()
        try:
            with context(self.device, self.threads, tell) as c, contextlib.ExitStack() as stack:
                m = None if images is None else stack.enter_context(opened(c, images))
                if weights is not None:
                    o.encoder = stack.enter_context(
                        opened_encoder(c, weights, self.settings.get("size")))
                check(lib.conr_cluster_features(c.handle, m.handle if m else None,
                                                None if x is None else address(x),
                                                *((0, 0) if x is None else x.shape), None,
                                                byref(o), byref(result)))
                if m:
                    warn_skipped(m)
        finally:
            close()
        self.chosen_: List[Any] = []
        self._take_made(result)
        self._source = images
        self._collect(run)
        return self

    def _take_made(self, result: CFeaturesResult) -> None:
        self._take(result, CFeaturesResult)
        self.result_["method"] = result.method.decode()

    def _take(self, result: Any, of: Any) -> None:
        self.result_ = {f[0]: getattr(result, f[0]) for f in of._fields_
                        if f[0] not in ("scores", "labeled", "baseline")}
        self.scores_: Dict[str, Any] = {}
        if result.labeled:
            self.scores_ = {f[0]: getattr(result.scores, f[0]) for f in CScores._fields_}

    def _folder(self, resume: bool) -> Path:
        if self.out is not None:
            text(self.out, "out")  # before the system refuses it in its own words
            run = Path(self.out)
            run.parent.mkdir(parents=True, exist_ok=True)
            if not resume and (run / "options.yaml").exists():
                raise InvalidError(f"{run}: already holds a run; give another out, fit with "
                                   "resume=True, or conr.load it")
            return run
        if resume and self._scratch is None:
            raise InvalidError("resume: there is no run to continue; give out, or fit first")
        if not resume:
            self._scratch = _Scratch()
        return Path(self._scratch.path) / "run"

    def _train(self, c: Context, s: Settings, X: Any, run: Path, resume: bool,
               scratch: str) -> None:
        o, result = lib.conr_train_defaults(), CTrainResult()
        o.out, o.resume, o.budget = text(run, "out"), int(resume), seconds(self.budget)
        init = self._init_file(scratch)
        o.init = text(init, "init") if init else None
        if resume:
            check(lib.conr_settings_read(s.handle, text(run / "options.yaml", "out")))
        else:
            self._fill(s)
        with opened(c, X, split=s.get("split"), classes=s.get("classes"),
                    coarse=s.get("labels") == "coarse",
                    long_tail=float(s.get("long_tail"))) as m:
            self.chosen_ = [] if resume or self.recipe is not None else self._choose(c, s, m,
                                                                                     o.budget)
            kept = c_double()  # for clusters of the descriptor, as `conr cluster --budget`
            if not resume:
                check(lib.conr_budget_keep(c.handle, m.handle, o.out, o.budget, byref(kept)))
            o.budget -= kept.value
            check(lib.conr_train(c.handle, m.handle, s.handle, byref(o), byref(result)))
            warn_skipped(m)
            self._take(result, CTrainResult)
            self.baseline_ = _baseline(result.baseline)
            if kept.value > 0 and result.baseline.descriptor_confirmed:
                self._use_descriptor(c, s, m, o.out, result)

    def _use_descriptor(self, c: Context, s: Settings, m: Images, run: bytes,
                        trained: CTrainResult) -> None:
        """The training did not beat the built-in descriptor: it moves to run_/training."""
        o, result = lib.conr_features_defaults(), CFeaturesResult()
        o.out, o.clusters = run, trained.clusters
        o.seed, o.restarts = int(s.get("seed")), int(s.get("restarts"))
        o.selection = m.selection
        note = create_string_buffer(NOTE_SIZE)
        check(lib.conr_use_descriptor(c.handle, m.handle, byref(trained.baseline), byref(o),
                                      byref(result), note))
        self._take_made(result)
        warnings.warn(note.value.decode(), TrainingWarning, stacklevel=4)

    def _fill(self, s: Settings) -> None:
        """Sets the recipe, then K and the seed, then all settings given."""
        if self.recipe is not None:
            s.read(self.recipe)
        s.set("clusters", 0 if self.n_clusters == "auto" else self.n_clusters)
        if self.seed is not None:
            s.set("seed", self.seed)
        for key in sorted(self.settings, key=lambda key: key != "preset"):  # others override it
            s.set(key, self.settings[key])

    def _choose(self, c: Context, s: Settings, m: Images,
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
            given: Optional[str] = self.init
            return given
        path = os.path.join(scratch, "init.safetensors")
        write_safetensors(path, self.init)
        return path

    def _collect(self, run: Path) -> None:
        """Reads the results from the run folder."""
        self.run_ = run
        self.refresh()
        self.embedding_ = np.load(run / "embeddings.npy")
        self.log_ = read_log(run)
        for said in dict.fromkeys(r["warning"] for r in self.log_ if "warning" in r):
            warnings.warn(said.replace("warning: ", "", 1), TrainingWarning, stacklevel=3)

    def refresh(self) -> "DeepCluster":
        """Reads labels_ and cluster_names_ again, after the clusters were edited: by open, by
        conr.Edits, or by `conr open`.  Images marked as outlier or wrong then have the label -1."""
        run = self.run_
        with open(run / "labels.csv", newline="", errors="surrogateescape") as f:
            rows = list(csv.DictReader(f))
        self.paths_ = [r["path"] for r in rows]
        self.labels_ = np.array([r["cluster"] for r in rows], np.int32)
        self.distances_ = np.array([r["distance"] for r in rows], np.float32)
        self.boundary_ = np.array([r["boundary"] for r in rows], np.float32)
        self.cluster_names_ = {int(r["cluster"]): r["name"] for r in rows if r.get("name")}
        self.model_ = load(run, device=self.device, threads=self.threads)
        self.model_._scratch = self._scratch  # keeps a temporary folder alive
        self.cluster_centers_ = self.model_.centroids
        self.n_clusters_ = self.model_.clusters
        return self

    def open(self, *, browser: bool = True) -> "DeepCluster":
        """`conr open` of the run: the clusters in the browser, to be named and corrected.  Returns
        when that is ended, by its button or by Ctrl-C, with labels_ and cluster_names_ as
        decided."""
        self._fitted()
        open_run(self.run_, browser)
        return self.refresh()

    # -- using

    def _fitted(self) -> Model:
        if not hasattr(self, "model_"):
            raise InvalidError("DeepCluster: not fitted yet; call fit first")
        model: Model = self.model_
        return model

    def fit_predict(self, X: Any, y: Any = None, *, images: Any = None) -> np.ndarray:
        """fit, then labels_."""
        return self.fit(X, images=images).labels_

    def fit_transform(self, X: Any, y: Any = None, *, images: Any = None) -> np.ndarray:
        """fit, then the features of the same images."""
        features: np.ndarray = self.fit(X, images=images).embedding_
        return features

    def predict(self, X: Any) -> np.ndarray:
        """Clusters of images, int32 [n]; of features, if those were clustered."""
        return self._fitted().predict(self._rows(X))

    def transform(self, X: Any) -> np.ndarray:
        """Features of images, float32 [n, d], rows of length 1; of features, as they were
        clustered."""
        return self._fitted().embed(self._rows(X))

    def _rows(self, X: Any) -> Any:
        return X if self._encoder() is None or is_features(X) else self._encode(X)[0]

    embed = transform

    def save(self, folder: PathLike) -> Path:
        """Copies the run folder; conr.load(folder) opens its model again."""
        self._fitted()
        target = Path(folder)
        if target.exists() and any(target.iterdir()):
            raise FileError(f"{target}: is not empty; give a new folder")
        shutil.copytree(self.run_, target, dirs_exist_ok=True)
        return target

    def report(self, path: PathLike) -> Path:
        """Writes a self-contained HTML file: what was done, and every cluster.

        A copy of the run's report.html if there is one, made anew if the clusters were edited; else a short page with the most central
        images of each cluster, the scores and the settings.
        """
        self._fitted()
        own = self.run_ / "report.html"
        if own.exists() and Path(path).exists() and own.samefile(path):
            return Path(path)
        check_output(path)
        if (self.run_ / "edits.json").exists():
            o = CReportOptions()
            o.out = text(path, "path")
            with context("cpu", self.threads) as c:
                check(lib.conr_report(c.handle, text(self.run_, "out"), byref(o), None))
            return Path(path)
        if own.exists():
            return Path(shutil.copyfile(own, path))
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
        epochs = f"{self.result_['epochs']} epochs in " if "epochs" in self.result_ else ""
        return text + f"; {epochs}{self.result_['seconds']:.0f} s"

    def _clusters_html(self, most: int, each: int, size: int = 32) -> str:
        shown = range(min(self.n_clusters_, most))
        central = [[int(i) for i in members[np.argsort(self.distances_[members],
                                                       kind="stable")[:each]]]
                   for members in (np.flatnonzero(self.labels_ == k) for k in shown)]
        wanted = [i for row in central for i in row]
        try:
            if self._source is None:
                raise FileError("images: there are none; fit with images=")
            with context("cpu", self.threads) as c:
                pixels = thumbnails(c, self._source, self.paths_, wanted, size)
        except (Error, OSError):  # the images may be gone by now
            pixels = None
        seen = iter(pixels if pixels is not None else [])
        return _html.table(self._facts(), [
            {"cluster": k, "size": int((self.labels_ == k).sum()),
             "images": "".join(_html.image(next(seen), self.paths_[i]) for i in central[k])
             if pixels is not None else ""}
            for k in shown])


def read_log(run: PathLike) -> List[Dict[str, Any]]:
    """The log.jsonl of a run, one dict per line; pandas.DataFrame(read_log(run)) is a table."""
    out = []
    for line in (Path(run) / "log.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            out.append(json.loads(line))
        except ValueError:  # a truncated last line
            continue
    return out
