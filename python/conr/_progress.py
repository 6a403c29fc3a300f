"""Progress of long work on a terminal or in a notebook."""
from __future__ import annotations

import sys
import time
from typing import Any, Callable, Optional, Tuple, Union

from ._library import Progress

TellProgress = Union[bool, Callable[[Progress], Any]]


class _Bar:
    """Progress through tqdm if it is installed, else one line per second on stderr."""

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


def reporter(progress: TellProgress) -> Tuple[Optional[Callable[[Progress], Any]],
                                              Callable[[], None]]:
    """The callback for a `progress` argument (None: no reports), and what ends its display."""
    if callable(progress):
        return progress, lambda: None
    if not progress:
        return None, lambda: None
    bar = _Bar()
    return bar, bar.close
