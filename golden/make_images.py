#!/usr/bin/python3
"""Small image files of many kinds, made with Pillow, numpy, gzip and zlib, and what Pillow decodes.

    golden/make_images.py            write the folder images/ next to this script
    golden/make_images.py --check    make them again and compare with the files

images/NAME.EXT and images/NAME.EXT.npy: a file, and its pixels uint8 [h,w] or [h,w,3] as Pillow
decodes them: ImageOps.exif_transpose, then convert("RGB") or, if the file is gray, "L".  16-bit
gray, which Pillow would clip, is the upper byte.  PNGs that Pillow cannot write (16-bit RGB, 2-bit
gray, interlaced) come from write_png below; Pillow reads them.
images/cifar10, cifar100, idx: data sets of a few records, and images/NAME.npy [n,h,w(,3)] of them.
"""
import argparse
import gzip
import io
import pathlib
import struct
import sys
import zlib

import numpy as np
from PIL import Image, ImageOps

HERE = pathlib.Path(__file__).resolve().parent / "images"
W, H = 24, 17
ORIENTATION = 0x0112


def picture(h=H, w=W, seed=0):
    """Smooth, with some texture: RGB bytes."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:h, 0:w]
    waves = [np.sin(x / (3 + k) + k) * np.cos(y / (4 + k)) for k in range(3)]
    image = 128 + 90 * np.stack(waves, -1) + rng.normal(0, 6, (h, w, 3))
    return np.clip(image, 0, 255).astype(np.uint8)


# A PNG writer for what Pillow does not write

def pack_rows(samples, depth):
    """samples [h,w,c] as filter byte 0 and big-endian bits, row by row."""
    rows = []
    for row in samples.reshape(len(samples), -1):
        if depth == 16:
            data = row.astype(">u2").tobytes()
        elif depth == 8:
            data = row.astype(np.uint8).tobytes()
        else:
            bits = np.unpackbits(row.astype(np.uint8)[:, None], axis=1)[:, 8 - depth:]
            data = np.packbits(bits).tobytes()
        rows.append(b"\0" + data)
    return b"".join(rows)


def write_png(samples, depth, color, interlaced=False):
    adam7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
             (0, 1, 1, 2)]
    parts = [samples[y::dy, x::dx] for x, y, dx, dy in adam7] if interlaced else [samples]
    data = b"".join(pack_rows(p, depth) for p in parts if p.size)
    chunk = lambda kind, body: (struct.pack(">I", len(body)) + kind + body +
                                struct.pack(">I", zlib.crc32(kind + body)))
    head = struct.pack(">IIBBBBB", samples.shape[1], samples.shape[0], depth, color, 0, 0,
                       int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(data, 9)) +
            chunk(b"IEND", b""))


# Files

def saved(image, kind, **more):
    out = io.BytesIO()
    image.save(out, kind, **more)
    return out.getvalue()


def with_orientation(value):
    exif = Image.Exif()
    exif[ORIENTATION] = value
    return exif.tobytes()


def make_files():
    rgb = Image.fromarray(picture())
    gray = rgb.convert("L")
    rgba = rgb.copy()
    rgba.putalpha(Image.fromarray(picture(seed=1)[..., 0]))
    wide = picture().astype(np.uint16) * 257 - 100 * (picture() > 9)
    files = {
        "rgb.png": saved(rgb, "PNG"), "gray.png": saved(gray, "PNG"),
        "bits1.png": saved(gray.convert("1"), "PNG"),
        "bits2.png": write_png(picture()[..., :1] >> 6, 2, 0),
        "palette.png": saved(rgb.quantize(13), "PNG", transparency=3),
        "rgba.png": saved(rgba, "PNG"), "la.png": saved(rgba.convert("LA"), "PNG"),
        "rgb16.png": write_png(wide, 16, 2), "gray16.png": write_png(wide[..., :1], 16, 0),
        "interlaced.png": write_png(picture(), 8, 2, True),
        "turned.png": saved(rgb, "PNG", exif=with_orientation(6)),
        "rgb.jpg": saved(rgb, "JPEG", quality=90), "gray.jpg": saved(gray, "JPEG", quality=90),
        "full.jpg": saved(rgb, "JPEG", quality=95, subsampling=0),
        "progressive.jpg": saved(rgb, "JPEG", quality=85, progressive=True),
        "cmyk.jpg": saved(rgb.convert("CMYK"), "JPEG", quality=95),
        "large.jpg": saved(Image.fromarray(picture(150, 200)), "JPEG", quality=85),
        "lossless.webp": saved(rgb, "WEBP", lossless=True),
        "lossy.webp": saved(rgb, "WEBP", quality=90),
        "alpha.webp": saved(rgba, "WEBP", lossless=True, exact=True),
        "turned.webp": saved(rgb, "WEBP", lossless=True, exif=with_orientation(8)),
    }
    for value in range(2, 9):
        files[f"turned{value}.jpg"] = saved(rgb, "JPEG", quality=90, exif=with_orientation(value))
    return files


def seen(name, data):
    image = Image.open(io.BytesIO(data))
    if name == "gray16.png":
        return (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)
    is_gray = image.mode in ("1", "L", "LA")
    return np.asarray(ImageOps.exif_transpose(image).convert("L" if is_gray else "RGB"))


def as_npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def make_cifar(seed, n, labels):
    """n records: label bytes, then planes; and the images [n,32,32,3]."""
    images = np.stack([picture(32, 32, seed + i) for i in range(n)])
    records = [bytes(l) + i.transpose(2, 0, 1).tobytes() for l, i in zip(labels, images)]
    return b"".join(records), images


def make_idx(images, labels):
    head = lambda a: struct.pack(f">BBBB{a.ndim}I", 0, 0, 8, a.ndim, *a.shape)
    return head(images) + images.tobytes(), head(labels) + labels.tobytes()


def make_all():
    files = {}
    for name, data in make_files().items():
        files[name] = data
        if name != "large.jpg":  # its test compares means and does not need all pixels
            files[name + ".npy"] = as_npy(seen(name, data))
    files["cifar10/data_batch_1.bin"], ten = make_cifar(10, 1, [[3]])
    files["cifar10/test_batch.bin"], more = make_cifar(11, 1, [[9]])
    files["cifar10/batches.meta.txt"] = b"\n".join(b"name%d" % i for i in range(10)) + b"\n\n"
    files["cifar10.npy"] = as_npy(np.concatenate([ten, more]))
    files["cifar100/train.bin"], _ = make_cifar(12, 1, [[19, 99]])
    files["cifar100/test.bin"], _ = make_cifar(13, 1, [[0, 41]])
    gray = np.stack([picture(5, 7, 20 + i)[..., 0] for i in range(6)])
    train = make_idx(gray[:4], np.array([1, 0, 3, 1], np.uint8))
    test = make_idx(gray[4:], np.array([2, 2], np.uint8))
    files["idx/train-images-idx3-ubyte"], files["idx/train-labels-idx1-ubyte"] = train
    files["idx/t10k-images-idx3-ubyte.gz"] = gzip.compress(test[0], mtime=0)
    files["idx/t10k-labels-idx1-ubyte.gz"] = gzip.compress(test[1], mtime=0)
    files["gray.npy"] = as_npy(gray)
    return files


def main():
    parser = argparse.ArgumentParser(description="Make the small image files of the tests.")
    parser.add_argument("--check", action="store_true", help="compare with the files, write none")
    check, files, wrong = parser.parse_args().check, make_all(), []
    for name, data in files.items():
        path = HERE / name
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        elif not path.exists() or path.read_bytes() != data:
            wrong.append(name)
    print(f"{len(files)} files, {sum(map(len, files.values()))} bytes:",
          f"DIFFERENT: {' '.join(wrong)}" if wrong else "same" if check else "written")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
