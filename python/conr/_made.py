"""Features in place of a training, for DeepCluster: how the library is asked to cluster them."""
from __future__ import annotations

import contextlib
import os
from ctypes import byref, c_char_p, c_void_p
from typing import Any, Iterator, Optional

from ._images import is_path
from ._library import CFeaturesOptions, Context, InvalidError, check, integer, lib, text
from ._settings import Settings

#: the settings that clusters of features have
FEATURES_KEYS = ("k", "k1", "k2", "alpha", "layers", "resymmetrize", "restarts", "clusters_low",
                 "clusters_high")


def weights_file(encoder: Any) -> Optional[str]:
    """The path, if the encoder is a file in contrast to the name of one of ours."""
    if not is_path(encoder):
        return None
    path = os.fspath(encoder)
    named = isinstance(encoder, str) and os.sep not in path and not path.endswith(".safetensors")
    return path if not named or os.path.isfile(path) else None


@contextlib.contextmanager
def opened_encoder(c: Context, path: str, size: Optional[int]) -> Iterator[c_void_p]:
    """A pretrained network from a file; size: of the images it sees, None for its own."""
    handle, given = c_void_p(), (c_char_p * 2)()
    if size is not None:
        given[0] = f"size={integer(size, 'size')}".encode()
    check(lib.conr_encoder_open(c.handle, text(path, "encoder"), given, byref(handle)))
    try:
        yield handle
    finally:
        lib.conr_encoder_close(handle)


def refuse_training(model: Any, resume: bool) -> None:
    """What only a training has must not be ignored in silence."""
    somebodys = model._encoder() is not None or model._weights() is not None
    given = [name for name in ("budget", "recipe", "init") if getattr(model, name) is not None]
    given += [key for key in model.settings if key not in FEATURES_KEYS
              and not (key in ("encoder", "size") and somebodys)]
    if given or resume:
        raise InvalidError(f"{(given + ['resume'])[0]}: is for a training, and features need "
                           "none; leave it out")


def features_options(model: Any) -> CFeaturesOptions:
    """As the parameters of a DeepCluster say, but for the folder."""
    o = lib.conr_features_defaults()
    with Settings() as s:
        s.set("clusters", 0 if model.n_clusters == "auto" else model.n_clusters)
        for key, value in model.settings.items():
            if key not in ("encoder", "size"):
                s.set(key, value)
        o.clusters, o.low = int(s.get("clusters")), int(s.get("clusters_low"))
        o.high, o.restarts = int(s.get("clusters_high")), int(s.get("restarts"))
        for key in ("k", "k1", "k2", "layers"):  # else the head and the graph have their own
            if key in model.settings:
                setattr(o.neighbors, key, int(s.get(key)))
        if "alpha" in model.settings:
            o.neighbors.alpha = float(s.get("alpha"))
        if "resymmetrize" in model.settings:
            o.neighbors.resymmetrize = int(s.get("resymmetrize") == "true")
    if model.seed is not None:
        o.seed = model.seed
    for name in ("method", "refine"):
        if getattr(model, name) is not None:
            setattr(o, name, text(getattr(model, name), name))
    return o
