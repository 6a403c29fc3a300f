"""conr: deep image clustering (CoNR), over libconr.

    import conr

    nb = conr.neighbors(features, k=10, k1=10, k2=2)     # contextually affinitive neighbors
    labels = conr.KMeans(10).fit_predict(features)       # in scikit-learn's style
    conr.metrics.nmi(truth, labels)
    model = conr.DeepCluster(10, budget="10m").fit("photos/")
    model = conr.DeepCluster(10).fit(features, images=paths)   # somebody's features, no training

conr.torch has the loss for your own training loop; python -m conr.convert converts checkpoints of
other programs.  Errors of the library are raised as conr.Error, with its message.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import metrics
from ._library import (DeviceError, Error, FileError, FormatError, InvalidError, NoMemoryError,
                       NumberError, Progress, Stopped, version)
from .features import (Assignment, assign, boundary, boundary_fraction, boundary_keep,
                       choose_clusters, neighbors)
from .safetensors import read_safetensors, write_safetensors

if TYPE_CHECKING:
    from ._encode import encode
    from ._settings import recipes, settings
    from .clustering import Clustering
    from .deep import DeepCluster, read_log
    from .edits import Edits, reset_edits
    from .graph import GraphClustering
    from .head import Head, refine
    from .kmeans import KMeans
    from .model import Model, TrainingWarning, load

__version__ = version()
__all__ = ["neighbors", "boundary", "boundary_keep", "boundary_fraction", "assign", "Assignment",
           "choose_clusters", "KMeans", "metrics", "DeepCluster", "Clustering",
           "Edits", "reset_edits", "GraphClustering", "Head", "refine", "encode", "Model", "load", "read_log",
           "recipes", "settings", "read_safetensors", "write_safetensors", "Progress", "Error",
           "InvalidError", "NoMemoryError", "FileError", "FormatError", "DeviceError",
           "NumberError", "Stopped", "TrainingWarning", "__version__"]

_later = {"KMeans": "kmeans", "Edits": "edits", "reset_edits": "edits", "Clustering": "clustering", "GraphClustering": "graph",
          "Head": "head", "refine": "head", "encode": "_encode",
          "DeepCluster": "deep", "Model": "model", "load": "model",
          "read_log": "deep", "recipes": "_settings", "settings": "_settings",
          "TrainingWarning": "model"}


def __getattr__(name: str) -> Any:
    """Imports estimators on first use, because scikit-learn is slow to import."""
    from importlib import import_module

    if name in ("torch", "convert"):  # modules that not everybody needs
        return import_module("." + name, __name__)
    if name not in _later:
        raise AttributeError(f"module 'conr' has no attribute {name!r}")
    value = getattr(import_module("." + _later[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> Any:
    return sorted(set(globals()) | set(__all__))
