#!/usr/bin/python3
"""Golden values of views: pixels as computed by torchvision's functional transforms on float tensors,
and the distribution of what its random transforms draw.

    golden/make_views.py            write views.safetensors and draws.safetensors next to this script
    golden/make_views.py --check    compute them again and compare with the files

views.safetensors, computed in float32 as torchvision does:
    image.I     I32 [h,w,c], bytes
    view.I      draw F32 [18] = x,y,w,h, flip,jitter,gray,blur,solarize, order[4] (0 brightness,
                1 contrast, 2 saturation, 3 hue), brightness,contrast,saturation,hue, sigma;
                shape I32 [2] = image, size; norm F32 [6] = mean, deviation; out F32 [size,size,c]
    plain.I     shape I32 [3] = image, size, side (0: squashed); norm; out: bicubic, antialiased
draws.safetensors, N draws of RandomResizedCrop.get_params, ColorJitter.get_params and the
probabilities of the random transforms:
    crop.I      shape I32 [2] = width,height; scale F32 [2]; values F32 [4,G], cdf F32 [4,G]: share
                of draws at most as large as values, for area / (width height), log(w/h), x, y;
                fallback F32 [1]: share of draws that are the central fallback box
    jitter      values, cdf F32 [4,G] of brightness, contrast, saturation, hue; first F32 [4,4]:
                share of draws with operation j in position i
    chance      F32 [5] shares of flip .5, jitter .8, gray .2, blur .5, solarize .2; n I32 [1] = N
"""
import math
import sys

import numpy as np
import torch
import torchvision.transforms as T
import torchvision.transforms.functional as F
from torchvision.transforms.functional import InterpolationMode as Mode

import make

SEED = 5
N = 100_000
GRID = 40
CIFAR = [.4914, .4822, .4465, .2023, .1994, .2010]
PLAIN = [0, 0, 0, 1, 1, 1]


# Pixels

def draw_image(rng, h, w, c):
    """Smooth colors, some noise, and flat, black and white corners, which are special cases for hue."""
    y, x = np.mgrid[0:h, 0:w]
    waves = [np.sin(x / (2 + k) + k) + np.cos(y / (3 + k)) for k in range(c)]
    image = 127 + 50 * np.stack(waves, -1) + rng.normal(0, 25, (h, w, c))
    image = np.clip(image, 0, 255).astype(np.uint8)
    image[:3, :3] = 0
    image[:3, -3:] = 255
    image[-3:, :3] = 93
    return image


IMAGES = [(32, 32, 3), (30, 47, 3), (61, 40, 3), (28, 28, 1)]

#        image size  x  y  w   h   flip jit gray blur sol order      b    c    s    hue   sigma norm
VIEWS = [(0, 32, 0, 0, 32, 32, 0, 0, 0, 0, 0, (0, 1, 2, 3), 1, 1, 1, 0, 1, PLAIN),
         (0, 32, 3, 5, 20, 17, 1, 0, 0, 0, 0, (0, 1, 2, 3), 1, 1, 1, 0, 1, CIFAR),
         (0, 16, 1, 2, 29, 27, 0, 0, 0, 0, 0, (0, 1, 2, 3), 1, 1, 1, 0, 1, PLAIN),
         (0, 24, 7, 0, 1, 1, 0, 0, 0, 0, 0, (0, 1, 2, 3), 1, 1, 1, 0, 1, PLAIN),
         (0, 24, 4, 4, 24, 24, 0, 1, 0, 0, 0, (0, 1, 2, 3), 1.4, .6, 1.4, .1, 1, PLAIN),
         (0, 24, 4, 4, 24, 24, 1, 1, 0, 0, 0, (3, 2, 1, 0), .6, 1.4, .6, -.1, 1, PLAIN),
         (0, 24, 0, 4, 30, 24, 0, 1, 0, 0, 0, (1, 3, 0, 2), 1.3, 1.37, 1.2, .07, 1, CIFAR),
         (0, 24, 0, 4, 30, 24, 0, 1, 1, 0, 0, (2, 0, 3, 1), .8, .9, .7, -.03, 1, PLAIN),
         (0, 24, 2, 2, 30, 30, 1, 0, 1, 0, 0, (0, 1, 2, 3), 1, 1, 1, 0, 1, PLAIN),
         (0, 24, 2, 2, 30, 30, 0, 0, 0, 0, 1, (0, 1, 2, 3), 1, 1, 1, 0, 1, PLAIN),
         (0, 32, 2, 2, 28, 30, 0, 0, 0, 1, 0, (0, 1, 2, 3), 1, 1, 1, 0, .1, PLAIN),
         (0, 32, 2, 2, 28, 30, 0, 1, 0, 1, 1, (0, 2, 1, 3), 1.1, .8, 1.3, .05, 2, CIFAR),
         (1, 44, 3, 1, 40, 28, 0, 0, 0, 1, 0, (0, 1, 2, 3), 1, 1, 1, 0, 1.3, PLAIN),
         (1, 20, 0, 0, 47, 30, 1, 1, 0, 0, 0, (3, 1, 2, 0), 1.1, .7, .9, .5, 1, PLAIN),
         (1, 20, 0, 0, 47, 30, 1, 1, 0, 0, 0, (3, 1, 2, 0), 1.1, .7, .9, -.5, 1, PLAIN),
         (1, 17, 40, 2, 7, 27, 0, 1, 0, 0, 0, (2, 3, 0, 1), 1.2, 1.1, 0, .02, 1, PLAIN),
         (2, 11, 0, 0, 40, 61, 0, 0, 0, 0, 0, (0, 1, 2, 3), 1, 1, 1, 0, 1, PLAIN),
         (2, 13, 5, 9, 33, 44, 1, 1, 0, 0, 1, (1, 0, 2, 3), .7, 1.2, 1.1, -.08, 1, PLAIN),
         (3, 28, 2, 3, 21, 24, 1, 1, 1, 0, 0, (2, 1, 3, 0), 1.3, .8, .5, .1, 1, PLAIN),
         (3, 28, 0, 0, 28, 28, 0, 1, 0, 1, 1, (0, 3, 1, 2), .9, 1.4, .5, .1, .9, PLAIN)]

#        image size side norm
PLAINS = [(0, 32, 0, CIFAR), (0, 20, 0, PLAIN), (1, 32, 0, PLAIN), (2, 24, 28, PLAIN),
          (1, 24, 26, PLAIN), (3, 28, 0, PLAIN), (3, 14, 0, PLAIN)]


def to_float(image):
    return torch.from_numpy(image).permute(2, 0, 1).float() / 255


def normalize(x, norm):
    c = x.shape[0]
    return F.normalize(x, norm[:c], norm[3:3 + c]).permute(1, 2, 0)


def make_view(image, case):
    _, size, x, y, w, h, flip, jitter, gray, blur, solarize, order, b, c, s, hue, sigma, norm = case
    t = F.resized_crop(to_float(image), y, x, h, w, [size, size], Mode.BILINEAR, antialias=True)
    if flip:
        t = F.hflip(t)
    for k in order if jitter else ():
        t = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)[k](
            t, (b, c, s, hue)[k])
    if gray:
        t = F.rgb_to_grayscale(t, t.shape[0])
    if blur:
        t = F.gaussian_blur(t, int(.1 * size) | 1, sigma)
    if solarize:
        t = F.solarize(t, 0.5)
    draw = [x, y, w, h, flip, jitter, gray, blur, solarize, *order, b, c, s, hue, sigma]
    return {"draw": np.float64(draw), "shape": [case[0], size], "norm": np.float64(norm),
            "out": normalize(t, norm)}


def make_plain(image, case):
    _, size, side, norm = case
    t = to_float(image)
    if side:
        t = F.center_crop(F.resize(t, side, Mode.BICUBIC, antialias=True), [size, size])
    else:
        t = F.resize(t, [size, size], Mode.BICUBIC, antialias=True)
    return {"shape": list(case[:3]), "norm": np.float64(norm), "out": normalize(t, norm)}


def make_views():
    rng = np.random.default_rng(SEED)
    images = [draw_image(rng, *shape) for shape in IMAGES]
    tensors = {f"image.{i}": image.astype(np.int32) for i, image in enumerate(images)}
    for i, case in enumerate(VIEWS):
        tensors |= {f"view.{i}.{k}": v for k, v in make_view(images[case[0]], case).items()}
    for i, case in enumerate(PLAINS):
        tensors |= {f"plain.{i}.{k}": v for k, v in make_plain(images[case[0]], case).items()}
    return tensors


# Distributions

def distribution(samples):
    """Frequent values of the samples, and the share of samples at most as large."""
    samples = np.sort(samples)
    at = np.unique(samples[np.linspace(0, len(samples) - 1, GRID).astype(int)].astype(np.float32))
    at = np.pad(at, (0, GRID - len(at)), mode="edge")
    return at, np.searchsorted(samples, at, side="right") / len(samples)


def distributions(columns):
    pairs = [distribution(np.asarray(c, dtype=np.float32)) for c in columns]
    return {"values": np.stack([p[0] for p in pairs]), "cdf": np.stack([p[1] for p in pairs])}


def make_crop(w, h, scale):
    image, boxes = torch.empty(3, h, w), np.empty((N, 4))
    for i in range(N):
        boxes[i] = T.RandomResizedCrop.get_params(image, scale, [3 / 4, 4 / 3])
    y, x, bh, bw = boxes.T
    fw, fh = min(w, round(h * 4 / 3)), min(h, round(w * 4 / 3))
    central = (bw == fw) & (bh == fh) & (x == (w - fw) // 2) & (y == (h - fh) // 2)
    columns = [bw * bh / (w * h), np.log(bw / bh), x, y]
    return {"shape": [w, h], "scale": np.float64(scale), "fallback": central.mean(),
            **distributions(columns)}


def make_jitter():
    jitter, factors, places = T.ColorJitter(.4, .4, .4, .1), np.empty((N, 4)), np.zeros((4, 4))
    for i in range(N):
        order, *factors[i] = T.ColorJitter.get_params(jitter.brightness, jitter.contrast,
                                                      jitter.saturation, jitter.hue)
        places[np.arange(4), order.numpy()] += 1
    return {"first": places / N, **distributions(factors.T)}


def make_chance():
    """Finds out whether the transforms changed an image of two pixels."""
    image = torch.tensor([[[.1, .9]], [[.2, .7]], [[.3, .5]]])
    flat = lambda x: torch.zeros_like(x)
    ask = [T.RandomHorizontalFlip(.5), T.RandomApply([flat], .8), T.RandomGrayscale(.2),
           T.RandomApply([flat], .5), T.RandomSolarize(.5, .2)]
    return [np.mean([not torch.equal(t(image), image) for _ in range(N // 4)]) for t in ask]


def make_draws():
    torch.manual_seed(SEED)
    tensors = {"n": [N], "chance": np.float64(make_chance())}
    sizes = [(32, 32, (.08, 1)), (500, 375, (.08, 1)), (96, 96, (.45, 1)), (40, 100, (.45, 1))]
    for i, (w, h, scale) in enumerate(sizes):
        tensors |= {f"crop.{i}.{k}": v for k, v in make_crop(w, h, list(scale)).items()}
    return tensors | {f"jitter.{k}": v for k, v in make_jitter().items()}


def make_all(seed):
    note = {"made_by": "golden/make_views.py"}
    return {"views.safetensors": make.pack(make_views(), make.make_metadata(SEED) | note),
            "draws.safetensors": make.pack(make_draws(), make.make_metadata(SEED) | note)}


if __name__ == "__main__":
    make.make_all = make_all
    sys.exit(make.main())
