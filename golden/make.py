#!/usr/bin/python3
"""Golden values for the tests: operations and networks as torch and torchvision compute them.

    golden/make.py            write the files next to this script
    golden/make.py --check    compute them again and compare with the files
    golden/make.py NAME ...   the same for these files only

Needs torch, torchvision and numpy; the tests that read the files need none of them.

Everything is computed in float64 from inputs that are exact in float32, and stored rounded to
float32 (F32) or as int32 (I32), in safetensors files. `__metadata__` holds made_by, version, seed
and the versions of the libraries. The sums of torch depend on the machine, so on another one --check
may find last bits that differ; it then prints by how much.

Long because the format of each file is described right here, next to the code that writes it.

Letters: n images, h,w,c maps, g groups (equal contiguous parts of the batch, each a pass of its
own), d vector length. "Groups" are passes one after another: own batch statistics, one update of
the running statistics each, gradients summed. [x] marks a tensor that only some cases have.

No input of a ReLU is close to zero, and no maximum is close to the next: cases are drawn again until
that holds (MARGIN below), so that float32 and float64 agree on every mask.

ops.safetensors: names KIND.I.NAME, case I counted from 0; maps are NHWC, filters [out][ky][kx][in]
    conv.I      shape I32 [9] = n,h,w,ci,co,k,stride,pad,bias
                x, dx [n,h,w,ci]; w, dw [co,k,k,ci]; [bias, dbias [co]]; y, dy [n,oh,ow,co]
    norm.I      shape I32 [7] = n,h,w,c,groups,relu,kind; batch norm in train mode, eps 1e-5:
                z = relu?(gamma (y - mean) invstd + beta + r), r by kind: 0 nothing,
                1 `residual`, 2 a second normalized tensor (y2, gamma2, ...)
                y, z, dz, dy, eval [n,h,w,c]; gamma, beta, dgamma, dbeta [c];
                mean, invstd [g,c] (biased variance); running_mean, running_var [c] before,
                running_mean_after, running_var_after [c] (momentum 0.1, unbiased variance);
                [residual, dresidual [n,h,w,c]];
                [y2, dy2 [n,h,w,c]; gamma2, beta2, dgamma2, dbeta2, running_mean2, running_var2,
                running_mean2_after, running_var2_after [c]; mean2, invstd2 [g,c]];
                eval is the same expression with the running statistics from before
    max_pool.I  shape I32 [4] = n,h,w,c; 3x3, stride 2, pad 1; x, dx [n,h,w,c]; y, dy [n,oh,ow,c];
                x has many equal zeros: the gradient goes to the first maximum of a window,
                row by row
    mean_pool.I shape I32 [4] = n,h,w,c; x, dx [n,h,w,c]; y, dy [n,c]
    rows.I      shape I32 [2] = n,d; out = x / max(|x|, 1e-12); x, out, dout, dx [n,d];
                row 2 of case 1 is zero, and there dx is 0 by our definition (autograd would
                give dout / 1e-12)
    sgd.I       g = dw + decay w; v = momentum v + g; w -= lr v; avg = m avg + (1 - m) w with w
                from before the update (before = 1) or after it (before = 0)
                scalars F32 [4] = lr,momentum,decay,m; before I32 [1];
                w, dw, v, avg, w_after, v_after, avg_after [37]
    top_k.I     s [n,m]; k, self I32 [1]; ids I32 [n,k]: first row i's own column self + i (if
                self >= 0), then the larger value, then the lower column; s has ties
    argmin.I    s [n,m] with ties; ids I32 [n] (the first smallest), values [n]
    sums_by_label.I  x [n,d]; label I32 [n]; K I32 [1]; sums [K,d]; counts I32 [K] (one is 0)
    gemm.I      c = alpha op(a) op(b) + beta c0, row-major; shape I32 [5] = ta,tb,m,n,k;
                scalars F32 [2] = alpha,beta; a [m,k], or [k,m] if ta; b [k,n], or [n,k] if tb;
                c0, c [m,n]

resnet18, resnet34, resnet50, small.safetensors: encoder, projector, predictor in train mode,
    8 images as two groups of 4; filters in torch's order [out][in][ky][kx]
    resnet18    widths 2,4,8,16, CIFAR stem (3x3 stride 1), images 16x16x3
    resnet34    widths 2,4,8,16, ImageNet stem (7x7 stride 2, max-pool), images 33x47x3 (h,w,c)
    resnet50    bottlenecks of widths 2,4,8,16 and four times that at their ends, ImageNet stem,
                images 33x47x3
    small       widths 6,12,24, stem 3x3 stride 2, one block per stage, images 28x28x1
    projector   Linear(C,24) BN ReLU Linear(24,10); predictor Linear(10,12) BN ReLU Linear(12,10)
    shape I32 [4] = n,h,w,c; images [n,h,w,c];
    encoder.NAME, projector.NAME, predictor.NAME: the state before, names and shapes as torch's;
    features [n,C]; projected, predicted, dpredicted [n,10];
    grad.NAME for every parameter (exactly 0 for the biases that a batch norm cancels:
    projector.0, projector.3, predictor.0); after.NAME for every running_mean and running_var;
    eval.features [n,C], eval.projected [n,10]: eval mode, the state before

heads.safetensors: perceptrons on vectors, two groups of 4; P is byol, simsiam or moco
    byol        Linear(9,14) BN ReLU Linear(14,6)
    simsiam     Linear(9,14) without bias, BN ReLU Linear(14,6) BN
    moco        Linear(9,14) ReLU Linear(14,6)
    P.x, P.dx [8,9]; P.y, P.dy [8,6]; P.NAME the state before, as nn.Sequential names it;
    P.grad.NAME for every parameter (exactly 0 for byol's 0.bias and simsiam's 3.bias);
    P.after.NAME for every running_mean and running_var

torchvision.safetensors, torchvision50.safetensors: torchvision's own resnet18 and resnet50 at full
    width, eval mode, state by formula
    shape I32 [4] = n,h,w,c of the images; features [2,512] or [2,2048] after the mean pool;
    first_row [w,c] of image 0; e.NAME I32 [1] for each convolution
    State and images are not stored. Metadata `names` lists the 100 or 265 tensors of the state,
    one per line, in state_dict's order without num_batches_tracked and fc. Element i (torch's flat
    order) of tensor t is from
        h = t * 2^24 + i (uint32), h ^= h >> 16, h *= 0x85ebca6b, h ^= h >> 13,
        h *= 0xc2b2ae35, h ^= h >> 16, u = (h >> 8) * 2^-24
    filters (u - 0.5) * 2^(2 - e), e = ceil(log2(fan_in) / 2), fan_in = in * k * k;
    BN weight and running_var 0.5 + u (rounded to float32), BN bias and running_mean u - 0.5;
    images 4 u - 2, with t = 200 and i in NHWC order; t and i wrap around at 2^32
"""
import argparse
import copy
import functools
import json
import pathlib
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock, Bottleneck

HERE = pathlib.Path(__file__).resolve().parent
SEED = 20240
MARGIN = {"norm": 1e-3, "resnet18": 5e-5, "resnet34": 5e-5, "resnet50": 5e-5,
          "small": 1e-4, "heads": 1e-3}


# Files

def to_stored(value):
    """Anything array-like as little-endian int32 or float32, at least one-dimensional."""
    if torch.is_tensor(value):
        value = value.detach().numpy()
    array = np.atleast_1d(np.asarray(value))
    return np.ascontiguousarray(array, dtype="<i4" if array.dtype.kind == "i" else "<f4")


def pack(tensors, metadata):
    """The bytes of a safetensors file: header length, JSON header, tensors in order."""
    header, chunks, at = {"__metadata__": metadata}, [], 0
    for name, value in tensors.items():
        array = to_stored(value)
        assert np.isfinite(array).all(), name
        header[name] = {"dtype": "I32" if array.dtype.kind == "i" else "F32",
                        "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        chunks.append(array.tobytes())
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(chunks)


def unpack(data):
    """Name -> array, the reverse of pack."""
    size, = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8:8 + size]), data[8 + size:]
    header.pop("__metadata__")
    kinds = {"F32": "<f4", "I32": "<i4"}
    return {name: np.frombuffer(body[slice(*t["data_offsets"])], kinds[t["dtype"]])
            .reshape(t["shape"]) for name, t in header.items()}


def make_metadata(seed, **more):
    return {"made_by": "golden/make.py", "version": "1", "torch": torch.__version__,
            "torchvision": torchvision.__version__, "numpy": np.__version__,
            "seed": str(seed), **more}


# Drawing, and changes of layout

def as_float32(x):
    """The nearest float32 values, still in float64."""
    return x.float().double()


def normal(rng, *shape, scale=1.0):
    return as_float32(torch.from_numpy(scale * rng.standard_normal(shape)))


def uniform(rng, low, high, *shape):
    return as_float32(torch.from_numpy(rng.uniform(low, high, shape)))


def nchw(x):
    return x.permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


def leaf(x):
    return x.clone().requires_grad_()


def in_groups(f, groups, batch):
    """f on each of `groups` equal contiguous parts, one after another; returns the joined results."""
    return torch.cat([f(part) for part in batch.chunk(groups)])


# Operations: each function returns the tensors of one case

def conv_case(rng, n, h, w, ci, co, k, stride, pad, bias):
    t = {"shape": [n, h, w, ci, co, k, stride, pad, bias]}
    t["x"] = leaf(normal(rng, n, h, w, ci))
    t["w"] = leaf(normal(rng, co, k, k, ci, scale=(k * k * ci) ** -0.5))
    if bias:
        t["bias"] = leaf(normal(rng, co))
    t["y"] = nhwc(F.conv2d(nchw(t["x"]), nchw(t["w"]), t.get("bias"), stride, pad))
    t["dy"] = normal(rng, *t["y"].shape)
    t["y"].backward(t["dy"])
    t["dx"], t["dw"] = t["x"].grad, t["w"].grad
    if bias:
        t["dbias"] = t["bias"].grad
    return t


def draw_norm(rng, n, h, w, c):
    """An input and the state of one batch norm; channel means of a few units, so that computing the
    variance as mean of squares minus squared mean would show its cancellation."""
    y = normal(rng, n, h, w, c) + normal(rng, c, scale=4.0)
    return {"y": leaf(as_float32(y)), "gamma": leaf(uniform(rng, 0.5, 1.5, c)),
            "beta": leaf(normal(rng, c, scale=0.5)), "running_mean": normal(rng, c),
            "running_var": uniform(rng, 0.5, 2.0, c)}


def run_norm(t, groups):
    """Adds batch and running statistics to t; returns the normalized tensor."""
    for name in ("running_mean", "running_var"):
        t[f"{name}_after"] = t[name].clone()
    parts = [nchw(p) for p in t["y"].chunk(groups)]
    t["mean"] = torch.stack([p.mean((0, 2, 3)) for p in parts])
    t["invstd"] = torch.stack([(p.var((0, 2, 3), unbiased=False) + 1e-5).rsqrt() for p in parts])
    return in_groups(lambda p: nhwc(F.batch_norm(
        nchw(p), t["running_mean_after"], t["running_var_after"], t["gamma"], t["beta"],
        training=True, momentum=0.1, eps=1e-5)), groups, t["y"])


def eval_norm(t):
    return nhwc(F.batch_norm(nchw(t["y"]), t["running_mean"], t["running_var"], t["gamma"],
                             t["beta"], training=False, eps=1e-5))


def try_norm_case(rng, n, h, w, c, groups, relu, kind):
    """One draw of a case, and how close to zero the input of its ReLU comes."""
    first, second, residual = draw_norm(rng, n, h, w, c), None, None
    z, evaluated = run_norm(first, groups), eval_norm(first)
    if kind == 1:
        residual = leaf(normal(rng, n, h, w, c))
        z, evaluated = z + residual, evaluated + residual
    if kind == 2:
        second = draw_norm(rng, n, h, w, c)
        z, evaluated = z + run_norm(second, groups), evaluated + eval_norm(second)
    margin = min(z.abs().min().item(), evaluated.abs().min().item())
    if relu:
        z, evaluated = z.relu(), evaluated.relu()
    dz = normal(rng, n, h, w, c)
    z.backward(dz)

    t = {"shape": [n, h, w, c, groups, relu, kind], **first, "z": z, "dz": dz, "eval": evaluated}
    t.update({"d" + name: first[name].grad for name in ("y", "gamma", "beta")})
    if kind == 1:
        t.update(residual=residual, dresidual=residual.grad)
    if kind == 2:
        t.update({number_two(name): value for name, value in second.items()})
        t.update({f"d{name}2": second[name].grad for name in ("y", "gamma", "beta")})
    return t, margin


def number_two(name):
    """running_mean_after -> running_mean2_after, y -> y2"""
    stem, after, _ = name.partition("_after")
    return stem + "2" + after


def norm_case(rng, *shape):
    while True:
        t, margin = try_norm_case(rng, *shape)
        if margin > MARGIN["norm"]:
            return t


def pool_case(rng, pool, x):
    t = {"shape": x.shape, "x": leaf(x)}
    t["y"] = pool(nchw(t["x"]))
    t["dy"] = normal(rng, *t["y"].shape)
    t["y"].backward(t["dy"])
    t["dx"] = t["x"].grad
    return t


def max_pool_case(rng, *shape):
    x = as_float32((normal(rng, *shape) - 0.75).relu())  # a fifth of the windows is all zero
    return pool_case(rng, lambda x: nhwc(F.max_pool2d(x, 3, 2, 1)), x)


def mean_pool_case(rng, *shape):
    return pool_case(rng, lambda x: x.mean((2, 3)), normal(rng, *shape))


def rows_case(rng, n, d, zero_row):
    x = normal(rng, n, d, scale=3.0)
    if zero_row is not None:
        x[zero_row] = 0
    t = {"shape": [n, d], "x": leaf(x)}
    t["out"] = F.normalize(t["x"], dim=1, eps=1e-12)
    t["dout"] = normal(rng, n, d)
    t["out"].backward(t["dout"])
    t["dx"] = t["x"].grad.clone()
    if zero_row is not None:
        t["dx"][zero_row] = 0
    return t


def sgd_step(w, dw, v, lr, momentum, decay):
    """One step of torch's optimizer; v is None for the first one. Returns w and v after it."""
    p = nn.Parameter(w.clone())
    p.grad = dw
    optimizer = torch.optim.SGD([p], lr=lr, momentum=momentum, weight_decay=decay)
    if v is not None:
        optimizer.state[p]["momentum_buffer"] = v.clone()
    optimizer.step()
    return p.detach(), optimizer.state[p]["momentum_buffer"]


def sgd_case(rng, before, *scalars):
    n = 37
    lr, momentum, decay, m = np.float32(scalars).tolist()
    first = sgd_step(normal(rng, n), normal(rng, n), None, lr, momentum, decay)
    w, v = map(as_float32, first)
    dw, avg = normal(rng, n), normal(rng, n)
    w_after, v_after = sgd_step(w, dw, v, lr, momentum, decay)
    avg_after = m * avg + (1 - m) * (w if before else w_after)
    return {"scalars": scalars, "before": before, "w": w, "dw": dw, "v": v, "avg": avg,
            "w_after": w_after, "v_after": v_after, "avg_after": avg_after}


def with_ties(rng, n, m):
    """Multiples of 1/2 in -1 .. 1: so few that every case has ties, also among extremes."""
    s = rng.integers(-2, 3, (n, m)) / 2
    assert ((s == s.min(1, keepdims=True)).sum(1) > 1).any()
    assert ((s == s.max(1, keepdims=True)).sum(1) > 1).any()
    return s


def top_k_case(rng, n, m, k, own):
    s = with_ties(rng, n, m)
    ids = [sorted(range(m), key=lambda j: (own < 0 or j != own + i, -s[i, j], j))[:k]
           for i in range(n)]
    return {"s": s, "k": k, "self": own, "ids": ids}


def argmin_case(rng, n, m):
    s = with_ties(rng, n, m)
    return {"s": s, "ids": s.argmin(1), "values": s.min(1)}


def sums_by_label_case(rng, n, d, K, unused):
    x = normal(rng, n, d)
    label = rng.choice([j for j in range(K) if j != unused], n)
    sums = torch.zeros(K, d, dtype=torch.float64).index_add_(0, torch.from_numpy(label), x)
    return {"x": x, "label": label, "K": K, "sums": sums,
            "counts": np.bincount(label, minlength=K)}


def gemm_case(rng, ta, tb, m, n, k, alpha, beta):
    a = normal(rng, *((k, m) if ta else (m, k)))
    b = normal(rng, *((n, k) if tb else (k, n)))
    c0 = normal(rng, m, n)
    c = alpha * (a.T if ta else a) @ (b.T if tb else b) + beta * c0
    return {"shape": [ta, tb, m, n, k], "scalars": [alpha, beta], "a": a, "b": b, "c0": c0, "c": c}


OPS = {
    "conv": (conv_case, [
        (2, 7, 5, 3, 8, 3, 1, 1, 0), (2, 9, 8, 5, 7, 3, 2, 1, 0), (1, 11, 13, 3, 6, 7, 2, 3, 0),
        (3, 6, 6, 8, 12, 1, 2, 0, 0), (4, 1, 1, 10, 6, 1, 1, 0, 1), (2, 8, 8, 8, 8, 3, 1, 1, 0),
        (2, 10, 6, 16, 8, 3, 1, 1, 0), (1, 16, 16, 1, 4, 3, 2, 1, 0)]),
    "norm": (norm_case, [
        (4, 3, 3, 5, 1, 1, 0), (4, 3, 3, 5, 2, 1, 0), (6, 2, 4, 8, 3, 1, 1),
        (4, 3, 2, 7, 2, 1, 2), (8, 1, 1, 6, 2, 1, 0), (8, 1, 1, 6, 2, 0, 0)]),
    "max_pool": (max_pool_case, [(2, 8, 8, 4), (1, 7, 9, 3), (2, 17, 24, 2)]),
    "mean_pool": (mean_pool_case, [(3, 4, 4, 5), (2, 2, 3, 8)]),
    "rows": (rows_case, [(5, 7, None), (4, 16, 2)]),
    "sgd": (sgd_case, [(1, 0.05, 0.9, 5e-4, 0.996), (0, 0.5, 0.9, 5e-4, 0.9)]),
    "top_k": (top_k_case, [(5, 5, 3, 0), (4, 9, 9, -1), (3, 20, 4, 7)]),
    "argmin": (argmin_case, [(7, 4), (5, 23)]),
    "sums_by_label": (sums_by_label_case, [(11, 5, 4, 2), (40, 3, 7, 6)]),
    "gemm": (gemm_case, [
        (0, 0, 5, 7, 9, 1.0, 0.0), (0, 1, 7, 3, 11, 0.5, 1.0), (1, 0, 9, 5, 3, -2.0, 0.25),
        (1, 1, 3, 11, 7, 1.5, -1.0)]),
}


def make_ops(seed):
    tensors = {}
    for number, (kind, (make, cases)) in enumerate(OPS.items()):
        rng = np.random.default_rng([seed, number])  # a new case does not change the other kinds
        for i, case in enumerate(cases):
            tensors.update({f"{kind}.{i}.{name}": value
                            for name, value in make(rng, *case).items()})
    return pack(tensors, make_metadata(seed))


# Networks

STEMS = {  # kernel and stride of the first convolution, whether a max-pool follows
    "imagenet": (7, 2, True),
    "cifar": (3, 1, False),
    "small": (3, 2, False),
}
BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3),
          "small": (1, 1, 1)}
NETWORKS = {  # stem, channels, width of the first stage; height and width of the images
    "resnet18": ("cifar", 3, 2, 16, 16),
    "resnet34": ("imagenet", 3, 2, 33, 47),
    "resnet50": ("imagenet", 3, 2, 33, 47),
    "small": ("small", 1, 6, 28, 28),
}
BOTTLENECKS = {"resnet50"}


class Encoder(nn.Module):
    """torchvision's ResNet, under its names, at any width and without fc."""

    def __init__(self, stem, channels, width, blocks, block=BasicBlock):
        super().__init__()
        k, stride, pool = STEMS[stem]
        self.conv1 = nn.Conv2d(channels, width, k, stride, k // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1) if pool else nn.Identity()
        self.stages = len(blocks)
        self.width, self.block = width, block
        for i, n_blocks in enumerate(blocks):
            setattr(self, f"layer{i + 1}", self.make_stage(width << i, n_blocks, 1 + (i > 0)))

    def make_stage(self, width, n_blocks, stride):
        shortcut, wide = None, width * self.block.expansion
        if stride != 1 or self.width != wide:
            shortcut = nn.Sequential(nn.Conv2d(self.width, wide, 1, stride, bias=False),
                                     nn.BatchNorm2d(wide))
        first, self.width = self.block(self.width, width, stride, shortcut), wide
        return nn.Sequential(first, *(self.block(wide, width) for _ in range(n_blocks - 1)))

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for i in range(self.stages):
            x = getattr(self, f"layer{i + 1}")(x)
        return x.mean((2, 3))


class Chain(nn.Module):
    def __init__(self, *encoder):
        super().__init__()
        self.encoder = Encoder(*encoder)
        self.projector = mlp(self.encoder.width, 24, 10)
        self.predictor = mlp(10, 12, 10)


def mlp(d_in, hidden, d_out):
    return nn.Sequential(nn.Linear(d_in, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
                         nn.Linear(hidden, d_out))


def block_of(name):
    return Bottleneck if name in BOTTLENECKS else BasicBlock


def assert_names_are_torchvisions():
    for name in ("resnet18", "resnet34", "resnet50"):
        ours = Encoder("imagenet", 3, 64, BLOCKS[name], block_of(name)).state_dict()
        theirs = getattr(torchvision.models, name)(weights=None).state_dict()
        assert [(k, v.shape) for k, v in ours.items()] == \
            [(k, v.shape) for k, v in theirs.items() if not k.startswith("fc.")], name


def draw_state(rng, model):
    """Fills a model with float32 values; batch norms are not just ones and zeros. The last norm of a
    block has small weights, so that deep networks amplify float32 rounding less."""
    state = model.state_dict()
    last = "bn3.weight" if any("bn3" in name for name in state) else "bn2.weight"
    for name, value in saved(model).items():
        is_norm = name.rpartition(".")[0] + ".running_var" in state
        shape = tuple(value.shape)
        if name.endswith("running_var"):
            drawn = uniform(rng, 0.5, 2.0, *shape)
        elif name.endswith("running_mean"):
            drawn = normal(rng, *shape, scale=0.3)
        elif is_norm and name.endswith("weight"):
            low = 0.2 if name.endswith(last) else 0.5
            drawn = uniform(rng, low, 3 * low, *shape)
        elif name.endswith("bias"):
            drawn = normal(rng, *shape, scale=0.3)
        else:
            drawn = normal(rng, *shape, scale=(2 / value[0].numel()) ** 0.5)
        state[name].copy_(drawn)


def saved(model):
    return {k: v for k, v in model.state_dict().items() if not k.endswith("num_batches_tracked")}


def gradients(model):
    """A bias that a batch norm cancels has no gradient: store zeros, not rounding errors."""
    return {f"grad.{name}": p.grad if p.grad.abs().max() > 1e-12 else torch.zeros_like(p)
            for name, p in model.named_parameters()}


def running(model):
    return {f"after.{k}": v for k, v in saved(model).items() if ".running_" in k}


class Margin:
    """Records how close the ReLUs and max-pools of a model come to another branch."""

    def __init__(self, model):
        self.least = float("inf")
        for module in model.modules():
            if isinstance(module, nn.ReLU):
                module.register_forward_pre_hook(self.see_relu)
            if isinstance(module, nn.MaxPool2d):
                module.register_forward_pre_hook(self.see_max_pool)

    def see_relu(self, module, inputs):
        self.least = min(self.least, inputs[0].abs().min().item())

    def see_max_pool(self, module, inputs):
        """Difference of the two largest in a window; at zero, the ReLU before stops the gradient."""
        x = F.pad(inputs[0], (1, 1, 1, 1), value=float("-inf"))
        top = x.unfold(2, 3, 2).unfold(3, 3, 2).flatten(4).topk(2, dim=4).values
        apart = (top[..., 0] - top[..., 1])[top[..., 0] > 0]
        self.least = min(self.least, apart.min().item())


def run_chain(model, images, dpredicted):
    """Two passes of half the batch, in train mode, then backward; returns the three outputs."""
    model.train()
    features = in_groups(lambda x: model.encoder(nchw(x)), 2, images)
    projected = in_groups(model.projector, 2, features)
    predicted = in_groups(model.predictor, 2, projected)
    predicted.backward(dpredicted)
    return {"features": features, "projected": projected, "predicted": predicted}


def eval_chain(model, images):
    model.eval()
    with torch.no_grad():
        features = model.encoder(nchw(images))
        return {"eval.features": features, "eval.projected": model.projector(features)}


def try_network(rng, name):
    """One draw of a network and its images: the tensors, and the margin of its branches."""
    stem, channels, width, h, w = NETWORKS[name]
    model = Chain(stem, channels, width, BLOCKS[name], block_of(name)).double()
    draw_state(rng, model)
    t = {"shape": [8, h, w, channels], "images": normal(rng, 8, h, w, channels)}
    dpredicted = normal(rng, 8, 10)
    t.update(copy.deepcopy(saved(model)))
    t.update(eval_chain(model, t["images"]))
    margin = Margin(model)
    t.update(run_chain(model, t["images"], dpredicted), dpredicted=dpredicted)
    t.update(gradients(model))
    t.update(running(model))
    return t, margin.least


def make_network(name, seed):
    rng = np.random.default_rng([seed, *name.encode()])
    while True:
        tensors, margin = try_network(rng, name)
        if margin > MARGIN[name]:
            return pack(tensors, make_metadata(seed))


# Heads

def build_heads():
    return {
        "byol": mlp(9, 14, 6),
        "simsiam": nn.Sequential(nn.Linear(9, 14, bias=False), nn.BatchNorm1d(14), nn.ReLU(),
                                 nn.Linear(14, 6), nn.BatchNorm1d(6)),
        "moco": nn.Sequential(nn.Linear(9, 14), nn.ReLU(), nn.Linear(14, 6)),
    }


def try_head(rng, model):
    draw_state(rng, model)
    t = {"x": leaf(normal(rng, 8, 9)), **copy.deepcopy(saved(model))}
    margin = Margin(model)
    t["y"] = in_groups(model, 2, t["x"])
    t["dy"] = normal(rng, 8, 6)
    t["y"].backward(t["dy"])
    t["dx"] = t["x"].grad
    return {**t, **gradients(model), **running(model)}, margin.least


def make_heads(seed):
    rng = np.random.default_rng(seed)
    tensors = {}
    for prefix, model in build_heads().items():
        margin = 0
        while margin <= MARGIN["heads"]:
            t, margin = try_head(rng, copy.deepcopy(model).double())
        tensors.update({f"{prefix}.{name}": value for name, value in t.items()})
    return pack(tensors, make_metadata(seed))


# torchvision's own network

def hashed(t, n):
    """u of elements 0 .. n-1 of tensor t: float32 multiples of 2^-24 in [0, 1)."""
    h = np.uint32(t << 24 & 0xffffffff) + np.arange(n, dtype=np.uint32)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85ebca6b)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xc2b2ae35)
    h ^= h >> np.uint32(16)
    return (h >> np.uint32(8)).astype(np.float32) * np.float32(2 ** -24)


def filter_exponent(weight):
    """e = ceil(log2(fan_in) / 2) in integers: the least e with 4^e >= fan_in."""
    e = 0
    while 4 ** e < weight[0].numel():
        e += 1
    return e


def formula_value(name, u, weight):
    """The value of a tensor from its u, in float32."""
    if weight.dim() == 4:
        return (u - np.float32(0.5)) * np.float32(2.0 ** (2 - filter_exponent(weight)))
    if name.endswith(("weight", "running_var")):
        return np.float32(0.5) + u
    return u - np.float32(0.5)


def fill_by_formula(model):
    """Sets the state of a model; returns its names, and the exponents of its filters."""
    state, exponents = saved(model), {}
    for t, (name, value) in enumerate(state.items()):
        if name.startswith("fc."):
            continue
        u = hashed(t, value.numel())
        value.copy_(torch.from_numpy(formula_value(name, u, value)).view(value.shape))
        if value.dim() == 4:
            exponents[f"e.{name}"] = filter_exponent(value)
    return [name for name in state if not name.startswith("fc.")], exponents


def make_torchvision(name, seed):
    model = getattr(torchvision.models, name)(weights=None).double().eval()
    model.fc = nn.Identity()
    names, exponents = fill_by_formula(model)
    assert len(names) == 5 * len(exponents)
    shape = 2, 64, 64, 3
    images = torch.from_numpy(hashed(200, np.prod(shape)) * 4 - 2).view(shape).double()
    with torch.no_grad():
        features = model(nchw(images))
    assert 0.1 < features.abs().mean() < 10  # the scales of the formula work through all layers
    return pack({"shape": shape, "features": features, "first_row": images[0, 0], **exponents},
                make_metadata(seed, names="\n".join(names)))


# The program

def make_all(seed, only):
    """File name -> bytes, of the named files or of all."""
    assert_names_are_torchvisions()
    makers = {"ops": make_ops, **{name: functools.partial(make_network, name) for name in NETWORKS},
              "heads": make_heads, "torchvision": functools.partial(make_torchvision, "resnet18"),
              "torchvision50": functools.partial(make_torchvision, "resnet50")}
    return {f"{name}.safetensors": makers[name](seed) for name in only or makers}


ROUNDING = 1e-13  # double sums of another BLAS; the tests allow 1e-5


def check(name, data):
    """Whether the file has these bytes; if not, by how much its values differ."""
    path = HERE / name
    if not path.exists():
        return "missing"
    if path.read_bytes() == data:
        return "same"
    new, old = unpack(data), unpack(path.read_bytes())
    if [(k, v.shape) for k, v in new.items()] != [(k, v.shape) for k, v in old.items()]:
        return "DIFFERENT tensors"
    apart = max(np.abs(new[k] - old[k]).max() / max(np.abs(new[k]).max(), 1e-30) for k in new)
    verdict = "same but for rounding" if apart <= ROUNDING else "DIFFERENT bytes"
    return f"{verdict}, numbers at most {apart:.1e} apart, relative to their tensor's largest"


def main():
    parser = argparse.ArgumentParser(description="Make the golden files of the tests.")
    parser.add_argument("--check", action="store_true", help="compare with the files, write none")
    parser.add_argument("names", nargs="*", help="only these files, without .safetensors")
    options = parser.parse_args()
    torch.set_num_threads(1)  # a fixed order of sums
    torch.use_deterministic_algorithms(True)
    files, verdicts = make_all(SEED, options.names), []
    for name, data in files.items():
        verdicts.append(check(name, data) if options.check else "written")
        if not options.check:
            (HERE / name).write_bytes(data)
        print(f"{name:24s} {len(data):8d} bytes {len(unpack(data)):4d} tensors  {verdicts[-1]}")
    print(f"{'total':24s} {sum(map(len, files.values())):8d} bytes")
    return int(any(not v.startswith(("same", "written")) for v in verdicts))


if __name__ == "__main__":
    sys.exit(main())
