"""Settings of a training: what can be set, recipes, and a conr_settings to fill."""
from __future__ import annotations

import os
import re
from ctypes import byref, c_void_p, create_string_buffer
from pathlib import Path
from typing import Any, Dict, List, Union

import numpy as np

from ._library import CSettingInfo, InvalidError, check, lib, text

PathLike = Union[str, "os.PathLike[str]"]
_settings_list: List[Dict[str, str]] = []


def settings() -> List[Dict[str, str]]:
    """All settings of a training: key, default, allowed values, help."""
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


def all_settings() -> List[Dict[str, str]]:
    """The same list, read once."""
    if not _settings_list:
        _settings_list.extend(settings())
    return _settings_list


class Settings:
    """A conr_settings of the library, as a context manager."""

    def __enter__(self) -> "Settings":
        self.handle = c_void_p()
        check(lib.conr_settings_new(byref(self.handle)))
        return self

    def __exit__(self, *exception: Any) -> None:
        lib.conr_settings_free(self.handle)

    def read(self, recipe: PathLike) -> None:
        text(recipe, "recipe")  # before the system refuses it in its own words
        path = Path(recipe)
        if not path.is_file() and os.fspath(recipe) in recipes():
            path = _recipe_folder() / f"{recipe}.yaml"
        check(lib.conr_settings_read(self.handle, text(path, "recipe")))

    def set(self, key: str, value: Any) -> None:
        said = str(value).lower() if isinstance(value, (bool, np.bool_)) else str(value)
        check(lib.conr_settings_set(self.handle, text(key, "setting"), text(said, key)))

    def get(self, key: str) -> str:
        out = create_string_buffer(4096)
        check(lib.conr_settings_get(self.handle, text(key, "setting"), out, len(out)))
        return out.value.decode()


def seconds(budget: Any) -> float:
    """90, "90s", "10m", "2h" or "1d" in seconds."""
    if budget is None:
        return 0.0
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([smhd]?)\s*", str(budget))
    if not found or float(found[1]) <= 0:
        raise InvalidError(f"budget {budget!r}: not a time; give seconds, or '90s', '10m', '2h'")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]
