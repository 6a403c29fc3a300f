"""conr: deep image clustering (CoNR), over libconr.

    import conr

    nb = conr.neighbors(features, k=10, k1=10, k2=2)     # contextually affinitive neighbors
    labels = conr.KMeans(10).fit_predict(features)       # scikit-learn's manners
    conr.metrics.nmi(truth, labels)
    model = conr.DeepCluster(10, budget="10m").fit("photos/")

conr.torch has the loss for one's own training loop; python -m conr.convert takes checkpoints of
others.  What the library refuses is raised as a conr.Error with its words.
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
    from .deep import DeepCluster, Model, TrainingWarning, load, read_log, recipes, settings
    from .kmeans import KMeans

__version__ = version()
__all__ = ["neighbors", "boundary", "boundary_keep", "boundary_fraction", "assign", "Assignment",
           "choose_clusters", "KMeans", "metrics", "DeepCluster", "Model", "load", "read_log",
           "recipes", "settings", "read_safetensors", "write_safetensors", "Progress", "Error", "InvalidError",
           "NoMemoryError", "FileError", "FormatError", "DeviceError", "NumberError", "Stopped",
           "TrainingWarning", "__version__"]

_later = {"KMeans": "kmeans", "DeepCluster": "deep", "Model": "deep", "load": "deep",
          "read_log": "deep", "recipes": "deep", "settings": "deep", "TrainingWarning": "deep"}


def __getattr__(name: str) -> Any:
    """Estimators are imported when they are first asked for: scikit-learn takes its time."""
    from importlib import import_module

    if name in ("torch", "convert"):  # modules that are not needed by all
        return import_module("." + name, __name__)
    if name not in _later:
        raise AttributeError(f"module 'conr' has no attribute {name!r}")
    value = getattr(import_module("." + _later[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> Any:
    return sorted(set(globals()) | set(__all__))
