#!/usr/bin/python3
"""Compares conr with Pillow and torchvision on this machine, in one run: decoding and random views.

    bench/images.py [--build DIR] [--cifar DIR] [--jpegs N] [--only formats] [--json]

Needs python3-pil, python3-torch, python3-torchvision, and the test programs of a build (default:
build/).  --cifar: a folder of CIFAR-10 binary files; without it, views are timed only on noise.
Both sides use one core; times are CPU seconds, the best of a few rounds, so that other work on the
machine matters little.  The JPEGs are synthetic, of a size like those of ImageNet: 500 x 375 pixels,
about 100 kB.  They are decoded and resized to a short side of SIDE with the same filter (bicubic);
Pillow also with its draft mode (scaling during decoding), and with the cheaper bilinear filter.
The same pictures in other formats and in archives, to a short side of 256: each as Pillow writes it by
default, HEIC by pillow_heif; a format that this Pillow or this build lacks is left out.  conr's time
holds a look at every header first, and the reading of the archive.
"""
import argparse
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

import numpy as np
import torch
import torchvision.transforms as T
from PIL import Image

SIDES = (128, 192, 256)  # stored for encoders of 64, 96 and 224 pixels
DISTINCT = 100           # JPEGs made; the folder has links to them


def best(function, turns=3):
    """The least CPU seconds of a call."""
    times = []
    for _ in range(turns):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def run(build, *words):
    return json.loads(subprocess.run([build / words[0], *map(str, words[1:])], check=True,
                                     stdout=subprocess.PIPE).stdout)


# Decoding

def make_picture(rng):
    """An image with colors, edges and grain somewhat like a photograph."""
    small = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    image = np.asarray(small.resize((500, 375), Image.BICUBIC)).astype(np.float32)
    for _ in range(40):
        x, y = rng.integers(0, 500), rng.integers(0, 375)
        image[y:y + rng.integers(5, 90), x:x + rng.integers(5, 90)] += rng.normal(0, 30, 3)
    image += rng.normal(0, 9, (375, 500, 1))
    return Image.fromarray(np.clip(image, 0, 255).astype(np.uint8))


def packed(image, *form, **options):
    out = io.BytesIO()
    image.save(out, *form, **options)
    return out.getvalue()


def make_folder(folder, count):
    rng, made = np.random.default_rng(1), folder / "made"
    made.mkdir()
    (folder / "all").mkdir()
    files = [packed(make_picture(rng), "JPEG", quality=92) for _ in range(min(DISTINCT, count))]
    for i, data in enumerate(files):
        (made / f"{i}.jpg").write_bytes(data)
    for i in range(count):
        (folder / "all" / f"{i:05d}.jpg").symlink_to(made / f"{i % len(files)}.jpg")
    return sum(map(len, files)) / len(files)


def pillow_decodes(paths, side, draft, filter=Image.BICUBIC):
    for path in paths:
        image = Image.open(path)
        if draft:
            image.draft("RGB", (side, side))
        w, h = image.size
        scale = side / min(w, h)
        np.asarray(image.convert("RGB").resize((round(w * scale), round(h * scale)), filter))


def time_decoding(build, count):
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        mean = make_folder(folder, count)
        paths = sorted((folder / "all").iterdir())[:max(DISTINCT, count // 10)]
        for side in SIDES:
            ours = [run(build, "store_test", "--time", folder / "all", side, 1) for _ in range(2)]
            rate = max(o["images_per_core_second"] for o in ours)
            plain, draft = (len(paths) / best(lambda: pillow_decodes(paths, side, d))
                            for d in (False, True))
            bilinear = len(paths) / best(lambda: pillow_decodes(paths, side, False, Image.BILINEAR))
            rows.append({"side": side, "mean_bytes": round(mean), "conr": rate,
                         "pillow": round(plain), "ratio": rate / plain,
                         "pillow_draft": round(draft), "ratio_draft": rate / draft,
                         "pillow_bilinear": round(bilinear), "ratio_bilinear": rate / bilinear,
                         "store_MB": ours[0]["store_MB"], "peak_MB": ours[0]["peak_MB"]})
    return rows


# Other formats, and archives

FORMATS = {"JPEG": ("jpg", {"quality": 92}), "PNG": ("png", {}), "BMP": ("bmp", {}),
           "GIF": ("gif", {}), "WebP": ("webp", {}), "TIFF": ("tif", {}),
           "TIFF, LZW": ("tif", {"compression": "tiff_lzw"}), "HEIC": ("heic", {}),
           "AVIF": ("avif", {})}


def pillow_reads_zip(path, side):
    with zipfile.ZipFile(path) as z:
        pillow_decodes([io.BytesIO(z.read(n)) for n in z.namelist()], side, False)


def pillow_reads_tar(path, side):
    with tarfile.open(path) as t:
        pillow_decodes([io.BytesIO(t.extractfile(m).read()) for m in t], side, False)


def compare(build, what, source, mean, count, side, pillow):
    """The best of turns that alternate; None where conr does not read this."""
    ours, theirs = [], []
    for _ in range(4):
        try:
            ours.append(run(build, "store_test", "--time", source, side, 1))
        except subprocess.CalledProcessError:
            return None
        theirs.append(count / best(pillow, 1))
    assert ours[0]["images"] == count
    rate = max(o["images_per_core_second"] for o in ours)
    return {"format": what, "mean_bytes": round(mean), "conr": rate, "pillow": round(max(theirs)),
            "ratio": rate / max(theirs)}


def time_formats(build, count, side=256):
    try:
        import pillow_heif
        pillow_heif.register_heif_opener()
    except ImportError:
        pass
    rows, rng = [], np.random.default_rng(1)
    pictures = [make_picture(rng) for _ in range(count)]
    with tempfile.TemporaryDirectory() as temporary:
        for what, (end, options) in FORMATS.items():
            folder = pathlib.Path(temporary) / what.replace(", ", "-")
            folder.mkdir()
            try:
                for i, picture in enumerate(pictures):
                    picture.save(folder / f"{i:04d}.{end}", **options)
            except (KeyError, ValueError, OSError):
                continue  # this Pillow cannot write it
            paths = sorted(folder.iterdir())
            mean = sum(p.stat().st_size for p in paths) / count
            rows.append(compare(build, what, folder, mean, count, side,
                                lambda: pillow_decodes(paths, side, False)))
        jpegs = sorted((pathlib.Path(temporary) / "JPEG").iterdir())
        zipped, taped = pathlib.Path(temporary) / "all.zip", pathlib.Path(temporary) / "all.tar"
        with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as z, tarfile.open(taped, "w") as t:
            for p in jpegs:
                z.write(p, p.name)
                t.add(p, p.name)
        mean = sum(p.stat().st_size for p in jpegs) / count
        rows.append(compare(build, "JPEG in .zip", zipped, mean, count, side,
                            lambda: pillow_reads_zip(zipped, side)))
        rows.append(compare(build, "JPEG in .tar", taped, mean, count, side,
                            lambda: pillow_reads_tar(taped, side)))
    return [r for r in rows if r]


# Views

def pipeline(size, blur):
    steps = [T.RandomHorizontalFlip(), T.RandomApply([T.ColorJitter(.4, .4, .4, .1)], .8),
             T.RandomGrayscale(.2)]
    if blur:
        steps.append(T.RandomApply([T.GaussianBlur(size // 10 | 1, (.1, 2))], .5))
    steps.append(T.Normalize([.5] * 3, [.2] * 3))
    return steps


def torch_views(images, size, blur):
    """torchvision on float tensors, with antialiasing."""
    crop, rest = T.RandomResizedCrop(size), T.Compose(pipeline(size, blur))
    for x in images:
        y, x0, h, w = crop.get_params(x, crop.scale, crop.ratio)
        rest(T.functional.resized_crop(x, y, x0, h, w, [size, size], antialias=True))


def pillow_views(images, size, blur):
    """torchvision on Pillow images, as in most training scripts."""
    steps = pipeline(size, blur)
    whole = T.Compose([T.RandomResizedCrop(size), *steps[:-1], T.ToTensor(), steps[-1]])
    for image in images:
        whole(image)


def time_views(build):
    rows = []
    for side, size, blur, count in ((32, 32, 0, 1000), (192, 96, 0, 200), (256, 224, 0.5, 60)):
        bytes_ = np.random.default_rng(2).integers(0, 256, (count, side, side, 3), dtype=np.uint8)
        floats = [torch.from_numpy(b).permute(2, 0, 1).float() / 255 for b in bytes_]
        pictures = [Image.fromarray(b) for b in bytes_]
        ours = run(build, "pixels_test", "--time", side, size, 3, blur)["views_per_s"]
        tensor = count / best(lambda: torch_views(floats, size, blur))
        pillow = count / best(lambda: pillow_views(pictures, size, blur))
        rows.append({"side": side, "size": size, "blur": blur, "conr": ours,
                     "torchvision_tensor": round(tensor), "torchvision_pillow": round(pillow),
                     "ratio_tensor": ours / tensor, "ratio_pillow": ours / pillow})
    return rows


def print_table(title, rows):
    print(title)
    if rows:
        print("  " + "  ".join(f"{k:>18s}" for k in rows[0]))
    for row in rows:
        print("  " + "  ".join(f"{v:18.2f}" if isinstance(v, float) else f"{v:>18}"
                               for v in row.values()))


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description="Compare decoding and views with Pillow and torchvision.")
    parser.add_argument("--build", type=pathlib.Path, default=here.parent / "build")
    parser.add_argument("--cifar", help="folder of CIFAR-10 binary files")
    parser.add_argument("--jpegs", type=int, default=5000)
    parser.add_argument("--formats", type=int, default=100, help="images of each format")
    parser.add_argument("--only", choices=["formats"], help="skip views and the sides of JPEGs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    result = {}
    if not options.only:
        result = {"views_per_core_second": time_views(options.build),
                  "jpegs_per_core_second": time_decoding(options.build, options.jpegs)}
    result["images_per_core_second"] = time_formats(options.build, options.formats)
    if options.cifar and not options.only:
        runs = [run(options.build, "loader_test", "--time", options.cifar, 32, 1, 0) for _ in range(3)]
        result["cifar10"] = [min(runs, key=lambda r: r["load_seconds"]),
                             max(runs, key=lambda r: r["views_per_core_s"])]
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        for title, rows in result.items():
            print_table(title, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
