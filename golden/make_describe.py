#!/usr/bin/python3
"""Golden values of the built-in descriptor, by plain NumPy in float64 (src/describe/describe.h).

    golden/make_describe.py                  write describe.safetensors next to this script
    golden/make_describe.py --check          compute it again and compare with the file
    golden/make_describe.py --typical FOLDER write src/describe/typical.c: mean and scale of each
                                             value over 5,000 images of CIFAR-100's train.bin

Needs numpy and torch (its bicubic resizing), and golden/make.py for the file format.

    shape I32 [cases,3] = h, w, c
    parts F32 [cases,484]: each part before it is turned and scaled
    whole F32 [cases,484]: the descriptor

Images are not stored: value k of pixel (y,x) is (x (3+2k) + y (5+k) + (x//9) (y//7) 13 (k+1)) % 256,
and in the last case 77. Cases are drawn so that no neighbor of a pixel is lighter by nearly 0.01.
"""
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

import make

SHAPES = [(64, 64, 3), (28, 28, 1), (140, 70, 3), (90, 300, 3), (64, 64, 1), (9, 7, 3)]
CUTS = [0, 90, 120, 248, 484]
SIDE, CELLS, BINS = 64, 8, 9
TYPICAL = pathlib.Path(__file__).resolve().parent.parent / "src/describe/typical.c"


def image(h, w, c, last):
    if last:
        return np.full((h, w, c), 77.0)
    y, x, k = np.meshgrid(np.arange(h), np.arange(w), np.arange(c), indexing="ij")
    return ((x * (3 + 2 * k) + y * (5 + k) + (x // 9) * (y // 7) * 13 * (k + 1)) % 256).astype(float)


def squashed(pixels):
    """[SIDE,SIDE,3] in [0,1]."""
    x = torch.tensor(pixels).permute(2, 0, 1)[None] / 255
    if pixels.shape[:2] != (SIDE, SIDE):
        x = F.interpolate(x, (SIDE, SIDE), mode="bicubic", antialias=True, align_corners=False)
    x = x[0].permute(1, 2, 0).numpy().clip(0, 1)
    return np.repeat(x, 3, axis=2) if x.shape[2] == 1 else x


def waves(grid):
    """The low frequencies of [8,8]."""
    i = np.arange(8)
    wave = [np.full(8, np.sqrt(1 / 8))]
    wave += [np.cos(np.pi * (2 * i + 1) * u / 16) / 2 for u in range(1, 4)]
    return [wave[u] @ grid @ wave[v] for u in range(4) for v in range(4 - u)]


def gradients(x):
    p = np.pad(np.sqrt(x), ((1, 1), (1, 1), (0, 0)), mode="edge")
    dx, dy = p[1:-1, 2:] - p[1:-1, :-2], p[2:, 1:-1] - p[:-2, 1:-1]
    strongest = np.argmax(dx ** 2 + dy ** 2, axis=2)[..., None]
    dx, dy = (np.take_along_axis(d, strongest, 2)[..., 0] for d in (dx, dy))
    size, angle = np.hypot(dx, dy), np.arctan2(dy, dx)
    size[size < 0.001] = 0
    near = np.maximum(0, 1 - abs((np.arange(SIDE)[None] - 3.5) / 8 - np.arange(CELLS)[:, None]))
    cell = np.zeros((BINS, CELLS, CELLS))
    for b in range(BINS):
        off = abs((angle - b * np.pi / BINS + np.pi / 2) % np.pi - np.pi / 2)
        share = np.maximum(0, np.cos(off) - np.cos(np.pi / BINS)) / (1 - np.cos(np.pi / BINS))
        cell[b] = near @ (size * share) @ near.T
    energy = (cell ** 2).sum(0)
    out = np.zeros_like(cell)
    for y in range(CELLS):
        for x_ in range(CELLS):
            for by in (y - 1, y):
                for bx in (x_ - 1, x_):
                    j, i = min(max(by, 0), CELLS - 2), min(max(bx, 0), CELLS - 2)
                    norm = np.sqrt(0.01 + energy[j:j + 2, i:i + 2].sum())
                    out[:, y, x_] += np.minimum(cell[:, y, x_] / norm, 0.2) / 4
    return np.concatenate([waves(out[b]) for b in range(BINS)])


def opponents(x):
    r, g, b = x[..., 0], x[..., 1], x[..., 2]
    return [(r + g + b) / 3, 2 * (r - g), r + g - 2 * b]


def layout(x):
    squares = [v.reshape(8, 8, 8, 8).mean((1, 3)) for v in opponents(x)]
    return np.concatenate([waves(s) for s in squares])


def colors(x):
    parts = []
    for top in (0, 32):
        for left in (0, 32):
            for v, low, bins in zip(opponents(x), (0, -0.5, -0.5), (8, 12, 12)):
                at = ((v[top:top + 32, left:left + 32] - low) * (bins - 1)).clip(0, bins - 1)
                tents = np.maximum(0, 1 - abs(at.ravel()[None] - np.arange(bins)[:, None]))
                parts.append(tents.sum(1))
    return np.sqrt(np.concatenate(parts))


def texture(image, margin):
    light = image.mean(2)
    uniform = {}
    for code in range(256):
        bits = [(code >> i) & 1 for i in range(8)]
        if sum(bits[i] != bits[i - 1] for i in range(8)) <= 2:
            uniform[code] = len(uniform)
    assert len(uniform) == 58
    index = np.array([uniform.get(code, 58) for code in range(256)])
    around = [(-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1)]
    code = np.zeros((62, 62), int)
    for k, (j, i) in enumerate(around):
        more = light[1 + j:63 + j, 1 + i:63 + i] - light[1:63, 1:63] - 0.01
        assert not margin or abs(more).min() > 1e-6, "draw another image"
        code += (more > 0) << k
    return np.sqrt(np.concatenate([np.bincount(index[code[y:y + 31, x:x + 31]].ravel(), minlength=59)
                                   for y in (0, 31) for x in (0, 31)]))


def unit(x):
    size = np.linalg.norm(x)
    return x / size if size > 0 else x


def parts(pixels, margin=True):
    x = squashed(pixels)
    return [gradients(x), layout(x), colors(x), texture(x, margin)]


def cosines(n):
    i = np.arange(n)
    return np.array([np.sqrt((1 + (u > 0)) / n) * np.cos(np.pi * (i + 0.5) * u / n)
                     for u in range(n)])


def turned(each):
    """The parts in their bases, each scaled to length 1."""
    g, l, c, t = each
    i = np.arange(BINS)
    circle = [np.full(BINS, np.sqrt(1 / BINS))]
    circle += [np.sqrt(2 / BINS) * np.cos(2 * np.pi * k * i / BINS) for k in range(1, 5)]
    circle += [np.sqrt(2 / BINS) * np.sin(2 * np.pi * k * i / BINS) for k in range(1, 5)]
    quarters = np.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]]) / 2
    c = quarters @ c.reshape(4, 32)
    c = np.hstack([c[:, :8] @ cosines(8).T, c[:, 8:20] @ cosines(12).T, c[:, 20:] @ cosines(12).T])
    whole = [np.array(circle) @ g.reshape(BINS, 10), l, c, quarters @ t.reshape(4, 59)]
    return [unit(p.ravel()) for p in whole]


def read_typical():
    text = TYPICAL.read_text()
    out = []
    for name in ("mean", "scale"):
        body = text[text.index(f"describe_{name}[DESCRIBE_SIZE] = {{"):]
        body = body[body.index("{") + 1:body.index("}")]
        out.append(np.array([np.float32(v.strip().rstrip("f")) for v in body.split(",")
                             if v.strip()], np.float64))
    return out


def wrapped(values):
    lines, line = [], "   "
    for v in values:
        word = f" {v:.5g}f," if "." in f"{v:.5g}" or "e" in f"{v:.5g}" else f" {v:.5g}.0f,"
        if len(line + word) > 100:
            lines.append(line)
            line = "   "
        line += word
    return "\n".join(lines + [line])


def write_typical(folder):
    data = np.fromfile(f"{folder}/train.bin", np.uint8).reshape(-1, 3074)[::10, 2:]
    rows = [turned(parts(row.reshape(3, 32, 32).transpose(1, 2, 0).astype(float), False))
            for row in data]
    means, scales = [], []
    for k in range(4):
        x = np.array([row[k] for row in rows])
        deviation = x.std(0)
        means.append(x.mean(0))
        scales.append(1 / np.sqrt(np.maximum(deviation, deviation.max() / 100)))
    TYPICAL.write_text(f"""/* typical.c: what is typical of photographs: mean and 1 / sqrt(deviation) of each value of a descriptor,
 * over {len(data)} images of CIFAR-100, without their labels (golden/make_describe.py --typical).
 * Deviations count as at least a hundredth of the largest of their part. */
#include "describe/describe.h"

// clang-format off
const float describe_mean[DESCRIBE_SIZE] = {{
{wrapped(np.concatenate(means))}
}};

const float describe_scale[DESCRIBE_SIZE] = {{
{wrapped(np.concatenate(scales))}
}};
""")


def make_all():
    (mean, scale), each, whole = read_typical(), [], []
    for number, shape in enumerate(SHAPES):
        p = parts(image(*shape, number == len(SHAPES) - 1))
        each.append(np.concatenate(p))
        off = (np.concatenate(turned(p)) - mean) * scale
        whole.append(np.concatenate([w * unit(off[a:b]) for w, a, b in
                                     zip((1.3, 1, 1, 1.3), CUTS, CUTS[1:])]))
    tensors = {"shape": np.array(SHAPES), "parts": np.array(each), "whole": np.array(whole)}
    return make.pack(tensors, {"made_by": "golden/make_describe.py", "version": "1",
                               "numpy": np.__version__, "torch": torch.__version__})


def main():
    if "--typical" in sys.argv[1:]:
        return write_typical(sys.argv[-1])
    path, data = make.HERE / "describe.safetensors", make_all()
    if "--check" not in sys.argv[1:]:
        path.write_bytes(data)
        return print(f"{path.name}: {len(data)} bytes")
    sys.exit(0 if path.read_bytes() == data else f"{path.name}: differs")


if __name__ == "__main__":
    main()
