"""Clusters as HTML: what a notebook shows for a fitted model."""
from __future__ import annotations

import base64
import html
import struct
import zlib
from typing import Any, Dict, List, Optional, Sequence

import numpy as np


def png(pixels: np.ndarray) -> bytes:
    """A PNG file of float [h,w,1|3] in [0,1]."""
    h, w, c = pixels.shape
    rows = np.zeros((h, 1 + w * c), np.uint8)  # each row starts with its filter type: none
    rows[:, 1:] = np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8).reshape(h, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))

    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2 if c == 3 else 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b""))


def image(pixels: np.ndarray, title: str) -> str:
    data = base64.b64encode(png(pixels)).decode()
    return (f'<img src="data:image/png;base64,{data}" title="{html.escape(title, quote=True)}" '
            'alt="" style="width:40px;height:40px;margin:1px;image-rendering:auto">')


def table(facts: str, clusters: Sequence[Dict[str, Any]]) -> str:
    """clusters: the number, size and images (as HTML) of each."""
    rows: List[str] = []
    for c in clusters:
        rows.append(f'<tr><td style="text-align:right">{c["cluster"]}</td>'
                    f'<td style="text-align:right">{c["size"]}</td>'
                    f'<td style="text-align:left;white-space:nowrap">{c["images"]}</td></tr>')
    return (f"<div><p>{html.escape(facts)}</p><table><thead><tr><th>cluster</th><th>images</th>"
            "<th>most central</th></tr></thead><tbody>" + "".join(rows) + "</tbody></table></div>")


def page(title: str, body: str, settings: Optional[Dict[str, Any]] = None) -> str:
    """A complete page that follows the light or dark mode of the reader."""
    rows = "".join(f"<tr><td>{html.escape(k)}</td><td>{html.escape(str(v))}</td></tr>"
                   for k, v in (settings or {}).items())
    return ("<!doctype html><html lang=en><meta charset=utf-8>"
            "<meta name=viewport content='width=device-width'>"
            f"<title>{html.escape(title)}</title><style>:root{{color-scheme:light dark}}"
            "body{font:16px system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em}"
            "td,th{padding:.2em .6em;vertical-align:top}table{border-collapse:collapse}"
            "td:last-child{white-space:normal!important}</style>"
            f"<h1>{html.escape(title)}</h1>{body}"
            + (f"<details><summary>settings</summary><table>{rows}</table></details>" if rows
               else "") + "</html>\n")
