#!/usr/bin/python3
"""Small BMP, GIF, TIFF, HEIC, AVIF and animated WebP files, and what Pillow decodes.

    golden/make_formats.py            write the folder formats/ next to this script
    golden/make_formats.py --check    decode the files that are there again and compare the pixels

formats/NAME.EXT and formats/NAME.EXT.npy, as in make_images.py.  Needs Pillow 11 with AVIF, pillow-heif
and tifffile (pip).  What these encoders write changes with their versions, so --check does not make the
files again.  Of 16 bits the upper 8 count, which Pillow would clip: those pixels come from numpy.
"""
import argparse
import io
import pathlib
import struct
import sys

import numpy as np
import pillow_heif
import tifffile
from PIL import Image, ImageOps

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from make_images import as_npy, picture, saved, with_orientation

HERE = pathlib.Path(__file__).resolve().parent / "formats"
pillow_heif.register_heif_opener()


# Bitmaps that Pillow does not write

def bmp(w, h, bits, packing, palette, pixels, masks=b""):
    """A header of 40 bytes, masks, palette [n,3] as BGR0, pixels."""
    colors = b"".join(struct.pack("BBBB", *c[::-1], 0) for c in palette)
    offset = 54 + len(masks) + len(colors)
    return (b"BM" + struct.pack("<IHHI", offset + len(pixels), 0, 0, offset) +
            struct.pack("<IiiHHIIiiII", 40, w, h, 1, bits, packing, len(pixels), 2835, 2835,
                        len(palette), 0) + masks + colors + pixels)


def runs(rows, half):
    """Run-length codes of rows of numbers, bottom row first: runs, and colors as they are."""
    out = bytearray()
    for row in rows[::-1]:
        row, x = list(map(int, row)), 0
        while x < len(row):
            n = 1
            while x + n < len(row) and row[x + n] == row[x] and n < 255:
                n += 1
            if n == 1 and len(row) - x >= 5:  # five colors as they are, padded
                some = row[x:x + 5]
                body = bytes([some[0] << 4 | some[1], some[2] << 4 | some[3], some[4] << 4]) \
                    if half else bytes(some)
                out += bytes([0, 5]) + body + bytes(len(body) & 1)
                x += 5
            else:
                out += bytes([n, row[x] << 4 | row[x] if half else row[x]])
                x += n
        out += b"\0\0"
    return bytes(out) + b"\0\1"


def sixteen(rgb):
    """5, 6 and 5 bits, rows padded to 4 bytes, bottom row first."""
    r, g, b = (rgb[..., k].astype(np.uint16) for k in range(3))
    words = (r >> 3) << 11 | (g >> 2) << 5 | b >> 3
    return np.ascontiguousarray(words[::-1]).astype("<u2").tobytes()


def bitmaps():
    rgb = Image.fromarray(picture())
    few = rgb.quantize(13)
    palette = np.array(few.getpalette()).reshape(-1, 3)[:13].tolist()
    numbers = np.asarray(few)
    down = bytearray(saved(rgb, "BMP"))
    height, w = struct.unpack_from("<i", down, 22)[0], rgb.width
    struct.pack_into("<i", down, 22, -height)  # the same rows from above: upside down
    return {
        "rgb.bmp": saved(rgb, "BMP"), "gray.bmp": saved(rgb.convert("L"), "BMP"),
        "bits1.bmp": saved(rgb.convert("1"), "BMP"), "palette.bmp": saved(few, "BMP"),
        "down.bmp": bytes(down), "rgba.bmp": saved(rgb.convert("RGBA"), "BMP"),
        "rle8.bmp": bmp(w, height, 8, 1, palette, runs(numbers, False)),
        "rle4.bmp": bmp(w, height, 4, 2, palette, runs(numbers, True)),
        "bits16.bmp": bmp(w, height, 16, 3, [], sixteen(picture()),
                          struct.pack("<III", 0xf800, 0x7e0, 0x1f)),
    }


def gifs():
    rgb = Image.fromarray(picture())
    few, other = rgb.quantize(13), Image.fromarray(picture(seed=5)).quantize(7)
    small = bytearray(saved(few, "GIF", interlace=0, transparency=4))
    struct.pack_into("<HH", small, 6, 30, 21)  # a canvas that the frame does not cover
    at = small.index(b"\x2c\0\0\0\0")
    struct.pack_into("<HH", small, at + 1, 3, 2)
    return {
        "palette.gif": saved(few, "GIF", interlace=0), "gray.gif": saved(rgb.convert("L"), "GIF"),
        "interlaced.gif": saved(few, "GIF", interlace=1),
        "animated.gif": saved(few, "GIF", save_all=True, append_images=[other], duration=100),
        "canvas.gif": bytes(small),
    }


def tiff(samples, **more):
    out = io.BytesIO()
    tifffile.imwrite(out, samples, metadata=None, **more)
    return out.getvalue()


def tiffs():
    rgb = Image.fromarray(picture())
    gray, cmyk = rgb.convert("L"), rgb.convert("CMYK")
    wide = (picture().astype(int) * 257 - 100 * (picture() > 9)).astype(np.uint16)
    big = picture(40, 50)
    alpha = np.dstack([picture(), picture(seed=1)[..., :1]])
    pages = [Image.fromarray(picture(seed=s)) for s in (0, 3)]
    exif = {"tiffinfo": {274: 6}}
    plain = {
        "rgb.tif": saved(rgb, "TIFF"), "gray.tif": saved(gray, "TIFF"),
        "lzw.tif": saved(rgb, "TIFF", compression="tiff_lzw"),
        "deflate.tif": saved(rgb, "TIFF", compression="tiff_adobe_deflate"),
        "fax.tif": saved(gray.convert("1"), "TIFF", compression="group4"),
        "palette.tif": saved(rgb.quantize(13), "TIFF"), "cmyk.tif": saved(cmyk, "TIFF"),
        "jpeg.tif": saved(rgb, "TIFF", compression="jpeg", quality=95),
        "turned.tif": saved(rgb, "TIFF", **exif),
        "pages.tif": saved(pages[0], "TIFF", save_all=True, append_images=pages[1:]),
        "white.tif": tiff(picture()[..., 0], photometric="miniswhite"),
        "planes.tif": tiff(picture().transpose(2, 0, 1).copy(), photometric="rgb",
                           planarconfig="separate", rowsperstrip=5),
        "tiles.tif": tiff(big, photometric="rgb", tile=(16, 32)),
        "planes-tiles.tif": tiff(big.transpose(2, 0, 1).copy(), photometric="rgb",
                                 planarconfig="separate", tile=(16, 16)),
        "big.tif": tiff(picture(), photometric="rgb", bigtiff=True),
        "motorola.tif": tiff(picture(), photometric="rgb", byteorder=">"),
        "rgba.tif": tiff(alpha, photometric="rgb", extrasamples=["unassalpha"]),
        "premultiplied.tif": tiff(alpha, photometric="rgb", extrasamples=["assocalpha"]),
    }
    sixteen_bits = {
        "gray16.tif": (tiff(wide[..., 0], photometric="minisblack"), wide[..., 0]),
        "rgb16.tif": (tiff(wide, photometric="rgb"), wide),
        "rgb16-motorola.tif": (tiff(wide, photometric="rgb", byteorder=">"), wide),
    }
    return plain, {n: (d, (w >> 8).astype(np.uint8)) for n, (d, w) in sixteen_bits.items()}


def heifs():
    rgb = Image.fromarray(picture(48, 64))  # encoders want a few blocks
    return {
        "rgb.heic": saved(rgb, "HEIF", quality=95, chroma=444),
        "turned.heic": saved(rgb, "HEIF", quality=95, chroma=444, exif=with_orientation(6)),
        "rgb.avif": saved(rgb, "AVIF", quality=95, subsampling="4:4:4"),
        "turned.avif": saved(rgb, "AVIF", quality=95, subsampling="4:4:4",
                             exif=with_orientation(8)),
    }


def webps():
    rgb, other = Image.fromarray(picture()), Image.fromarray(picture(seed=7))
    return {"animated.webp": saved(rgb, "WEBP", lossless=True, save_all=True,
                                   append_images=[other], duration=100)}


def seen(data):
    image = Image.open(io.BytesIO(data))
    color = np.asarray(image.convert("RGB"))
    is_gray = image.mode in ("1", "L", "LA") or (  # a palette of shades counts as gray
        image.format == "GIF" and (color == color[..., :1]).all())
    return np.asarray(ImageOps.exif_transpose(image).convert("L" if is_gray else "RGB"))


def main():
    parser = argparse.ArgumentParser(description="Make small image files of more formats.")
    parser.add_argument("--check", action="store_true", help="decode the files again, write none")
    check, wrong, total = parser.parse_args().check, [], 0
    plain, sixteen_bits = tiffs()
    files = {n: (d, None) for n, d in {**bitmaps(), **gifs(), **plain, **heifs(), **webps()}.items()}
    files.update(sixteen_bits)
    for name, (data, pixels) in files.items():
        path = HERE / name
        if check:
            data = path.read_bytes()
        expected = as_npy(seen(data) if pixels is None else pixels)
        if not check:
            HERE.mkdir(exist_ok=True)
            path.write_bytes(data)
            (HERE / (name + ".npy")).write_bytes(expected)
        elif (HERE / (name + ".npy")).read_bytes() != expected:
            wrong.append(name)
        total += len(data) + len(expected)
    print(f"{len(files)} files, {total} bytes:",
          f"DIFFERENT: {' '.join(wrong)}" if wrong else "same" if check else "written")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
