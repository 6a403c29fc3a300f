#!/usr/bin/python3
"""Golden training: ten steps of BYOL, SimSiam, MoCo v2 and ProPos, plain and with CoNR or the
confident stage 2, by torch.

    golden/make_train.py            write train.safetensors next to this script
    golden/make_train.py --check    compute it again and compare with the file

Needs torch, and golden/make.py for the file format. Everything is computed in float64 from values
that are exact in float32. A test should allow 1e-5 max(1, |loss|) for a loss and BOUND, relative to
its norm, for a tensor. The same computation in float32, also with its initial weights moved by an
ulp, must stay within a third of that and find the same neighbors and anchors.
No choice of neighbors or anchors is closer than MARGIN, and no input of a ReLU is closer to zero than
RELU_MARGIN: the views of a step are drawn again until that holds. Every switch of a case changes its
result by ten times what a test allows.

Long because an independent implementation of the whole method must not share code with anything.

The cases share a net: ENCODER_SMALL of width 4 on 16x16x3 images, batches of n = 24 of N = 120.
A case trains ten steps, s = 0 .. 9, of a longer run: step number first + s, counted from 1.

Values by formula, so that neither images nor initial weights are stored (C, exact in float):

    float u(uint32_t seed, uint32_t t, uint32_t i) {
        uint32_t h = seed * 0x9e3779b9u + (t << 20) + i;
        h = (h ^ h >> 16) * 0x85ebca6bu;
        h = (h ^ h >> 13) * 0xc2b2ae35u;
        h ^= h >> 16;
        return (float)(h >> 8) * (1.0f / 16777216.0f);
    }

    seed is that of the case. Tensors t = 0, 1, .. are those of the block of weights, in order: layer
    by layer (a block's shortcut between its two convolutions), of each layer weight, bias, norm's
    weight, norm's bias; elements i in the order of the block, [co][k][k][ci]. l = 0, 1, .. are the
    layers with a norm.
    online weight     offset[t] + (u(seed, t, i) - 0.5f) * scale[t]
    target weight     offset[t] + (u(seed, 128 + t, i) - 0.5f) * scale[t]
    SGD's v           (u(seed, 256 + t, i) - 0.5f) * (scale[t] * 0.0625f)
    online running    mean u(seed, 384 + 2 l, i) - 0.5f, variance 0.5f + u(seed, 385 + 2 l, i)
    target running    mean u(seed, 512 + 2 l, i) - 0.5f, variance 0.5f + u(seed, 513 + 2 l, i)
    MoCo's queue      row r, column j: u(seed, 640, r * d + j) - 0.5f, then the row over its length
                      (in double, rounded to float)
    noise             (propos, confident) on row i of view v of step s, column j: number j % 4 of Philox4x32-10 with key
                      (1, 0), which is the setting `seed`, and counter (j / 4, 24 v + i, s, 9) as
                      p, then of the pairs (p0, p1) and (p2, p3) by Box and Muller
                      r = sqrt(-2 log(((p0 >> 9) + 0.5) / 2^23)), t = 2 pi (p1 >> 8) / 2^24:
                      r cos t, r sin t
    view v of step s  (0: a, 1: b), row i = image id[s][i], pixel y,x, channel c:
                      T = u(seed, 700, (((id % 4) * 4 + y / 4) * 4 + x / 4) * 3 + c)   kind of image
                      P = u(seed, 701, ((id * 4 + y / 4) * 4 + x / 4) * 3 + c)         the image
                      E = u(draw[s], 1000 + 2 * s + v, ((i * 16 + y) * 16 + x) * 3 + c)  the view
                      each as an integer (int)(u * 65536.0f); the pixel is
                      (float)(3 * T + 3 * P + 2 * E - 262144) / 131072.0f, in [-2, 2)

train.safetensors, F is byol, simsiam, moco or propos, C a case:
    id         I32 [10,24]   the images of each step
    shuffle    I32 [10,24]   groups of the target if shuffle_bn: row r of the batch that it sees,
                             in groups of bn_group, is row shuffle[s][r]; the same for both views
    F.projector, F.predictor  I32 [layers,4] = out, bias, norm, relu; MoCo has no predictor
    F.count    I32 [tensors] elements of each tensor of the block of weights
    F.at       I32 [tensors] its offset there: each starts at a multiple of 16
    F.offset, F.scale  F32 [tensors]
    F.norms    I32 [norms]   channels of each norm; running statistics: mean [co], variance [co]
    F.of_target  I32 [2]     the target has this many tensors and norms, the first ones
                             (simsiam has no target: 0 0)
    C.case     I32 [3] = seed, stage, first; metadata `C` holds the settings, one line
                             `key: value` each; the others are defaults
    C.draw     I32 [10]      which draw of the views of each step
    C.check    F32 [16]      the first four values of view a of step 0, the last four of view b of
                             step 9; the first four of the weights, the last four of the target's
                             (simsiam: of the weights)
    C.schedule F32 [10,4] = the encoder's lr, the predictor's (moco: 0), m of the moving average
                             (simsiam: 0), share of the anchors that the filter keeps (1: no filter)
    C.loss, C.loss32  F32 [10]  the loss of each step (never scaled by stage2_loss_scale), computed
                             in float64 and in float32
    C.label    I32 [N], C.centroid F32 [K,d]  of all images, the same in all steps; of stage 2
                             unless boundary is false, of propos and of confident
    only in stage 2, confident:
    C.alike    I32 [10,2,n]  of each half: the labels of the confident rows, -1 of the others
    only in stage 2, conr:
    C.kept     I32 [10,2]    anchors that the filter kept, of half(q_a,k_b) and of half(q_b,k_a)
    C.near     I32 [2,n,k]   of step 0: neighbors of each row, from k_b and from k_a; of each list
                             the set counts, not the order
    after the ten steps:
    C.w, C.v, C.target         digests of weights, SGD's v, the target's weights
    C.running, C.target_running  digests of mean, variance, mean, variance, ..
    C.queue    digest of the queue [64,d] as one tensor. Key i of a step's 48 (k_b, k_a) goes to
               row (48 s + i) % 64; first - 1 is a multiple of 4, so counting s from the start
               of the run gives the same row
    C.w.full, C.target.full  of byol_conr, simsiam_conr and moco_conr: all values, tensor after
                             tensor without gaps
    A digest has for each tensor, in order: all values, if there are at most 32; else 12 values:
    its norm; three sums over i of (u(0, 800 + p, i) < 0.5f ? -1 : 1) x[i], p = 0 .. 2; and
    x[(2 j + 1) * count / 16], j = 0 .. 7.
"""
import copy
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F

import make

STEPS, BATCH, IMAGES, SIDE, CHANNELS, WIDTH, CLUSTERS = 10, 24, 120, 16, 3, 4, 4
MARGIN, RELU_MARGIN = 2e-4, 1e-5
APART, BOUND = 3e-5, 1e-4

# Settings. The names are those of a recipe; DEFAULTS apply to what a case does not name.

DEFAULTS = dict(
    framework="byol", predictor_lr=10, predictor_lr_fixed=False, stage2_lr=0.1,
    stage2_predictor_lr=0.1, momentum=0.9, decay=5e-4, average=0.996, average_fixed=False,
    target_update="before", neighborhood="conaff", alpha=2, layers=2, resymmetrize=True,
    boundary=True, fr0=0.8, relax_epochs=50, normalize_centroids=False, loss_mean="kept",
    stage2_loss_scale=1, temperature=0.1, bn_group=0, shuffle_bn=False, prototypes=0.1,
    prototype_temperature=0.5, prototype_epoch=50, positive_noise=0.001, prototypes_stage2=False,
    stage2="conr", stage2_average=0, confident_k=50, confident_pull=1, confident_prototypes=1,
    confident_byol=1)
SHARED = dict(encoder="small", stem="small", size=SIDE, width=WIDTH, batch=BATCH, epochs=20,
              stage1_epochs=12, warmup_epochs=3, clusters=CLUSTERS, k=5, k1=5, k2=2)
BYOL = dict(SHARED, framework="byol", hidden=16, features=8, predictor_hidden=16)
SIMSIAM = dict(SHARED, framework="simsiam", hidden=16, features=16, predictor_hidden=4,
               predictor_lr=1, predictor_lr_fixed=True)
MOCO = dict(SHARED, framework="moco", hidden=16, features=8, queue=64, average_fixed=True)
PROPOS = dict(BYOL, framework="propos", average_fixed=True)
FIRST = {1: 13, 2: 61}  # steps 1 to 15 are the warm-up; the first of stage 2 is 61

CASES = {  # seed, stage, settings
    "byol": (1, 1, dict(BYOL, lr=0.1)),
    "byol_after": (2, 1, dict(BYOL, lr=0.1, target_update="after", average=0.8)),
    "byol_conr": (3, 2, dict(BYOL, lr=0.5, average=0.8)),
    "byol_released": (4, 2, dict(BYOL, lr=1, bn_group=BATCH // 2, shuffle_bn=True,
                                 loss_mean="batch", stage2_loss_scale=0.25,
                                 normalize_centroids=True, average=0.9)),
    "byol_local": (6, 2, dict(BYOL, lr=0.5, neighborhood="local", boundary=False,
                              average=0.9)),
    "byol_paper": (6, 2, dict(BYOL, lr=0.5, resymmetrize=False, target_update="after",
                              relax_epochs=5, k=9, k1=3, average=0.8)),
    "simsiam": (28, 1, dict(SIMSIAM, lr=0.012)),
    "simsiam_conr": (8, 2, dict(SIMSIAM, lr=0.3, relax_epochs=5)),
    "moco": (9, 1, dict(MOCO, lr=0.1, average=0.999)),
    "moco_conr": (11, 2, dict(MOCO, lr=0.1, fr0=0.5, relax_epochs=2, average=0.99)),
    # its first three steps are BYOL's
    "propos": (16, 1, dict(PROPOS, lr=0.02, average=0.9, prototypes=1, prototype_epoch=3,
                           positive_noise=0.05)),
    "propos_conr": (34, 2, dict(PROPOS, lr=0.2, average=0.9, prototypes=1, positive_noise=0.05,
                                prototype_temperature=0.25, prototype_epoch=0,
                                prototypes_stage2=True, bn_group=BATCH // 2, shuffle_bn=True)),
    "byol_confident": (40, 2, dict(BYOL, lr=0.2, stage2="confident", stage2_average=0.9,
                                   confident_k=3, positive_noise=0.05)),
    "propos_confident": (45, 2, dict(PROPOS, lr=0.05, average=0.9, stage2="confident",
                                     confident_pull=0.5, confident_prototypes=2,
                                     confident_byol=0.75, positive_noise=0.05,
                                     prototype_temperature=0.25, bn_group=BATCH // 2,
                                     shuffle_bn=True, stage2_loss_scale=0.25)),
}
FULL = ("byol_conr", "simsiam_conr", "moco_conr")


def schedule(stage, s, step):
    """lr of the encoder and of the predictor, m, fraction kept; step counts from 1."""
    per_epoch, total = IMAGES // BATCH, s["epochs"] * (IMAGES // BATCH)
    e = step / per_epoch
    if e < s["warmup_epochs"]:
        lr = s["lr"] * e / s["warmup_epochs"]
    else:
        lr = 0.5 * s["lr"] * (1 + math.cos(math.pi * (e - s["warmup_epochs"]) / s["epochs"]))
    base = s["lr"] if s["predictor_lr_fixed"] else lr
    predictor = base * (s["predictor_lr"] if stage == 1 else s["stage2_predictor_lr"])
    m = s["average"]
    if not s["average_fixed"]:
        m = 1 - (1 - m) * (math.cos(math.pi * step / total) + 1) / 2
    if stage == 2 and s["stage2_average"]:
        m = s["stage2_average"]
    keep = 1.0
    if stage == 2:
        lr *= s["stage2_lr"]
        j = (step - 1) // per_epoch + 1 - s["stage1_epochs"]
        if s["boundary"] and s["stage2"] == "conr" and j < s["relax_epochs"]:
            keep = s["fr0"] + (1 - s["fr0"]) * j / s["relax_epochs"]
    return lr, predictor if s["framework"] != "moco" else 0, \
        m if s["framework"] != "simsiam" else 0, keep


# Values by formula, in float32

def u(seed, t, i):
    h = (np.uint64(seed * 0x9e3779b9 + (t << 20)) + np.asarray(i, np.uint64)).astype(np.uint32)
    h = (h ^ h >> np.uint32(16)) * np.uint32(0x85ebca6b)
    h = (h ^ h >> np.uint32(13)) * np.uint32(0xc2b2ae35)
    h ^= h >> np.uint32(16)
    return (h >> np.uint32(8)).astype(np.float32) * np.float32(2 ** -24)


def centered(seed, t, count):
    return u(seed, t, np.arange(count)) - np.float32(0.5)


def pixels(seed, ids, noise):
    """ids: [n]; noise: added by the view, [n,16,16,3] or a number. Returns [n,16,16,3]."""
    y, x, c = np.ogrid[:SIDE, :SIDE, :CHANNELS]
    place = (y // 4 * 4 + x // 4) * 3 + c
    kind = u(seed, 700, (ids % 4)[:, None, None, None] * 48 + place)
    image = u(seed, 701, ids[:, None, None, None] * 48 + place)
    t, p, e = ((z * np.float32(65536)).astype(np.int64) for z in (kind, image, np.float32(noise)))
    return ((3 * t + 3 * p + 2 * e - 262144) / 131072).astype(np.float32)


def view(seed, draw, ids, s, v):
    shape = len(ids), SIDE, SIDE, CHANNELS
    return pixels(seed, ids, u(draw, 1000 + 2 * s + v, np.arange(np.prod(shape))).reshape(shape))


def image_ids():
    """Two epochs, each a permutation."""
    all_ids = np.arange(IMAGES)
    return np.concatenate([all_ids * 7 + 3, all_ids * 11 + 5]).reshape(STEPS, BATCH) % IMAGES


def shuffles():
    r, s = np.arange(BATCH), np.arange(STEPS)[:, None]
    return (np.where(s % 2, 5, 7) * r + 3 * s + 1) % BATCH


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., 2011); counter: four arrays, key: two numbers."""
    c, k = [np.asarray(x, np.uint64) for x in np.broadcast_arrays(*counter)], list(key)
    low, word = np.uint64(0xffffffff), np.uint64(32)
    for _ in range(10):
        p, q = c[0] * np.uint64(0xd2511f53), c[2] * np.uint64(0xcd9e8d57)
        c = [(q >> word) ^ c[1] ^ np.uint64(k[0]), q & low,
             (p >> word) ^ c[3] ^ np.uint64(k[1]), p & low]
        k = [(k[0] + 0x9e3779b9) & 0xffffffff, (k[1] + 0xbb67ae85) & 0xffffffff]
    return c


def noise(s, v, d):
    """What ProPos adds to the projector's output for view v at step s, over its deviation."""
    row, block = np.ogrid[v * BATCH:(v + 1) * BATCH, :(d + 3) // 4]
    p = [x.astype(np.float64) for x in philox((block, row, s, 9), (1, 0))]
    out = []
    for length, turn in ((p[0], p[1]), (p[2], p[3])):
        r = np.sqrt(-2 * np.log((length // 2 ** 9 + 0.5) / 2 ** 23))
        t = 2 * np.pi * (turn // 2 ** 8) / 2 ** 24
        out += [r * np.cos(t), r * np.sin(t)]
    return torch.from_numpy(np.stack(out, 2).reshape(BATCH, -1)[:, :d].copy())


# The network: layers as rows of a table, in the order of our block of weights

def dense(name, ci, co, bias, norm, relu):
    return dict(name=name, ci=ci, co=co, k=1, stride=1, bias=bias, norm=norm, relu=relu)


def conv(name, ci, co, k, stride):
    return dict(name=name, ci=ci, co=co, k=k, stride=stride, bias=False, norm=True, relu=False)


def encoder_layers():
    rows, c = [conv("conv1", CHANNELS, WIDTH, 3, 2)], WIDTH
    for stage in range(3):
        co, stride, name = WIDTH << stage, 2 if stage else 1, f"layer{stage + 1}.0."
        rows.append(conv(name + "conv1", c, co, 3, stride))
        if stage:
            rows.append(conv(name + "downsample", c, co, 1, stride))
        rows.append(conv(name + "conv2", co, co, 3, 1))
        c = co
    return rows


def head(s, part):
    """Rows of out, bias, norm, relu."""
    hidden, out, predictor = s["hidden"], s["features"], s.get("predictor_hidden")
    return {
        ("byol", "projector"): [(hidden, 1, 1, 1), (out, 1, 0, 0)],
        ("byol", "predictor"): [(predictor, 1, 1, 1), (out, 1, 0, 0)],
        ("simsiam", "projector"): [(hidden, 0, 1, 1), (out, 1, 1, 0)],
        ("simsiam", "predictor"): [(predictor, 0, 1, 1), (out, 1, 0, 0)],
        ("moco", "projector"): [(hidden, 1, 0, 1), (out, 1, 0, 0)],
        ("moco", "predictor"): [],
    }[s["framework"].replace("propos", "byol"), part]


def all_layers(s):
    rows, c = encoder_layers(), 4 * WIDTH
    for part in ("projector", "predictor"):
        for i, (out, *flags) in enumerate(head(s, part)):
            rows.append(dense(f"{part}.{i}", c, out, *map(bool, flags)))
            c = out
    return rows


def fields(row):
    """Name, shape in our block, offset and scale of each tensor of a layer."""
    co, fan_in = row["co"], row["k"] ** 2 * row["ci"]
    is_head = row["name"].startswith("pro") or row["name"].startswith("pre")
    out = [("weight", (co, row["k"], row["k"], row["ci"]), 0,
            math.sqrt((12 if is_head else 24) / fan_in))]
    if row["bias"]:
        out.append(("bias", (co,), 0, 0.5))
    if row["norm"]:
        out += [("gamma", (co,), 1, 0.5), ("beta", (co,), 0, 0.5)]
    return [(f"{row['name']}.{name}", *rest) for name, *rest in out]


def tensors_of(rows):
    return [f for row in rows for f in fields(row)]


def from_blocks(name, shape, flat, dtype):
    """Our [co][k][k][ci] as torch's [co][ci][k][k]; dense layers are [co][ci]."""
    x = torch.from_numpy(flat.copy()).to(dtype).view(shape)
    if len(shape) == 1:
        return x
    return (x.view(shape[0], shape[3]) if name.startswith("pr") else make.nchw(x)).contiguous()


def to_block(x):
    x = x.detach()
    return (make.nhwc(x) if x.dim() == 4 else x).double().reshape(-1).numpy()


class Net:
    """Encoder, projector and predictor, as far as the rows go. p: tensors by name; running: by layer."""

    def __init__(self, rows, seed, first_weight, first_running, dtype, jitter=None):
        self.rows, self.p, self.running, norms = {r["name"]: r for r in rows}, {}, {}, 0
        self.closest = math.inf  # to zero, over all inputs of ReLUs
        for t, (name, shape, offset, scale) in enumerate(tensors_of(rows)):
            w = np.float32(offset) + centered(seed, first_weight + t, math.prod(shape)) \
                * np.float32(scale)
            if jitter is not None:
                w = w * np.float32(1 + 1.2e-7 * jitter.choice([-1, 0, 1], w.shape))
            self.p[name] = from_blocks(name, shape, w, dtype)
        for row in rows:
            if row["norm"]:
                t = first_running + 2 * norms
                mean, var = centered(seed, t, row["co"]), u(seed, t + 1, np.arange(row["co"]))
                self.running[row["name"]] = [torch.from_numpy(mean).to(dtype),
                                             torch.from_numpy(var + np.float32(0.5)).to(dtype)]
                norms += 1

    def relu(self, x):
        self.closest = min(self.closest, x.detach().abs().min().item())
        return x.relu()

    def normalize(self, name, x, groups):
        """Batch norm in train mode: statistics per group, and one update of the running statistics
        with their mean."""
        gamma, beta = self.p[name + ".gamma"], self.p[name + ".beta"]
        parts = x.chunk(groups)
        with torch.no_grad():
            axes = [0, 2, 3] if x.dim() == 4 else [0]
            mean = torch.stack([p.mean(axes) for p in parts]).mean(0)
            var = torch.stack([p.var(axes, unbiased=True) for p in parts]).mean(0)
            for old, new in zip(self.running[name], (mean, var)):
                old.mul_(0.9).add_(new, alpha=0.1)
        return torch.cat([F.batch_norm(p, None, None, gamma, beta, training=True, eps=1e-5)
                          for p in parts])

    def layer(self, name, x, groups):
        row, w = self.rows[name], self.p[name + ".weight"]
        if w.dim() == 4:
            x = F.conv2d(x, w, None, row["stride"], row["k"] // 2)
        else:
            x = F.linear(x, w, self.p.get(name + ".bias"))
        if row["norm"]:
            x = self.normalize(name, x, groups)
        return self.relu(x) if row["relu"] else x

    def project(self, images, groups):
        """[n,16,16,3] -> [n,d], encoder and projector."""
        x = self.relu(self.layer("conv1", make.nchw(images), groups))
        for stage in (1, 2, 3):
            name, shortcut = f"layer{stage}.0.", x
            y = self.relu(self.layer(name + "conv1", x, groups))
            if stage > 1:
                shortcut = self.layer(name + "downsample", x, groups)
            x = self.relu(self.layer(name + "conv2", y, groups) + shortcut)
        return self.head("projector", x.mean((2, 3)), groups)

    def head(self, part, x, groups):
        for name in self.rows:
            if name.startswith(part):
                x = self.layer(name, x, groups)
        return x


# Neighborhoods and the boundary filter

class Margins:
    """How close the choices were, and how many there were."""

    def __init__(self):
        self.least = {}
        self.entries = self.not_local = self.filled = self.anchors = self.removed = 0

    def see(self, what, value):
        self.least[what] = min(self.least.get(what, math.inf), float(value))


def ranked(values):
    """The columns of each row: itself, then by value, then by index; and their values."""
    values = values.clone()
    values.fill_diagonal_(math.inf)
    values, order = values.sort(dim=1, descending=True, stable=True)
    return order, values


def gap(values, k):
    return (values[:, k - 1] - values[:, k]).min()


def neighbors(features, s, margins):
    """[n,d], unit rows -> [n,k]"""
    n, k, k1, k2 = len(features), s["k"], s["k1"], s["k2"]
    sims = features @ features.T
    order, values = ranked(sims)
    local = order[:, :k]
    if s["neighborhood"] == "local":
        margins.see("S at k", gap(values, k))
        return local
    margins.see("S at k1", gap(values, k1))
    margins.see("S at k2", gap(values, k2))
    best = torch.zeros_like(sims).scatter_(1, order[:, :k1], 1)
    weight = torch.zeros_like(sims).scatter_(1, order[:, :k2], 1) * sims.clamp(min=0) ** s["alpha"]
    weight.fill_diagonal_(1)
    h = (best + best.T) / 2
    for layer in range(s["layers"]):
        if layer and s["resymmetrize"]:
            h = h + h.T
        h = F.normalize(weight @ h, dim=1)
    order_h, values_h = ranked(h @ h.T)
    lists = []
    for i in range(n):
        chosen = order_h[i, :k][values_h[i, :k] > 0].tolist()
        margins.see("HH' above 0", values_h[i, :k][values_h[i, :k] > 0].min())
        if len(chosen) == k:
            margins.see("HH' at k", values_h[i, k - 1] - values_h[i, k])
        else:
            margins.filled += k - len(chosen)
            rest = [j for j in order[i].tolist() if j not in chosen]
            cut = k - len(chosen)
            margins.see("S, filling up", sims[i, rest[cut - 1]] - sims[i, rest[cut]])
            chosen += rest[:cut]
        lists.append(chosen)
        margins.entries += k - 1
        margins.not_local += len(set(chosen) - set(local[i].tolist()))
    return torch.tensor(lists)


def keep(features, labels, centroids, share, s, margins):
    """Which anchors lie well inside their clusters: [n], 0 or 1."""
    if s["normalize_centroids"]:
        centroids = F.normalize(centroids, dim=1)
    distance = (features[:, None, :] - centroids[None]).pow(2).sum(2).sqrt()
    own = distance.gather(1, labels[:, None])[:, 0]
    other = distance.scatter(1, labels[:, None], math.inf).min(1).values
    ratio = 1 - (other - own) / torch.maximum(own, other)
    ordered, n = ratio.sort().values, len(ratio)
    count = max(1, math.floor(n * share + 1e-9))
    if count < n:
        margins.see("boundary", ordered[count] - ordered[count - 1])
    kept = ratio <= ordered[count - 1]
    margins.anchors += n
    margins.removed += n - int(kept.sum())
    return kept.to(features.dtype)


def confident(features, labels, most, margins):
    """The labels of rows whose k nearest neighbors all share them, -1 for the others: [n]."""
    order, values = ranked(features @ features.T)
    same = labels[order] == labels[:, None]
    agree = same[:, 1:].long().cumprod(1).sum(1).clamp(max=most)  # without the row itself
    count = [(agree >= k).sum().item() * k for k in range(1, most + 1)]
    kept = agree >= 1 + count.index(max(count))
    for row, ours in zip(values, same):  # no neighbor is about to change sides
        alike = row[1:][ours[1:]]
        if len(alike) and not ours.all():
            margins.see("confident", (row[~ours].max() - alike).abs().min())
    margins.anchors += len(kept)
    margins.removed += len(kept) - int(kept.sum())
    return torch.where(kept, labels, -1)


def cluster(features):
    """Plain k-means on unit rows, started from distant rows: labels, and centroids as float32."""
    rows = [0]
    while len(rows) < CLUSTERS:
        rows.append(int((features @ features[rows].T).max(1).values.argmin()))
    centroids = features[rows]
    for _ in range(50):
        labels = torch.cdist(features, centroids).argmin(1)
        assert len(labels.unique()) == CLUSTERS
        centroids = torch.stack([features[labels == j].mean(0) for j in range(CLUSTERS)])
    return labels, make.as_float32(centroids)


# Training

def half(q, keys, near, kept, s, queue):
    """One half of the group-aware loss, to be minimized: q pulled towards keys[near], over kept."""
    similar = (q[:, None, :] * keys[near]).sum(2)  # [n,k]
    if queue is None:
        each = -similar
    else:
        positive = similar / s["temperature"]
        negative = torch.logsumexp(q @ queue.T / s["temperature"], dim=1, keepdim=True)
        each = torch.logaddexp(positive, negative) - positive
    count = kept.sum() if s["loss_mean"] == "kept" else len(q)
    return (each.mean(1) * kept).sum() / count


def alike(q, keys, labels):
    """Pairs of rows and keys with the same label pulled together, all labels with equal weight."""
    each = [-(q[labels == c] @ keys[labels == c].T).mean() for c in labels.unique() if c >= 0]
    return torch.stack(each).mean()


def scatter(z, keys, labels, temperature):
    """Prototypes of z against those of the keys and against one another, over clusters there."""
    def prototypes(x):
        return F.normalize(torch.stack([x[labels == c].mean(0) for c in labels.unique()]), dim=1)

    own = prototypes(F.normalize(z, dim=1))
    logits = own @ own.T
    positive = torch.eye(len(own), dtype=torch.bool)
    logits = torch.where(positive, (own * prototypes(keys)).sum(1)[:, None], logits) / temperature
    return F.cross_entropy(logits, torch.arange(len(own)))


class Training:
    """Ten steps: the initial state by formula, then step() repeatedly."""

    def __init__(self, seed, stage, s, dtype, jitter=None):
        self.seed, self.stage, self.s, self.dtype = seed, stage, {**DEFAULTS, **s}, dtype
        s, rows = self.s, all_layers(s)
        self.ids, self.margins = image_ids(), Margins()
        self.online = Net(rows, seed, 0, 384, dtype, jitter)
        for p in self.online.p.values():
            p.requires_grad_()
        short = [r for r in rows if not r["name"].startswith("predictor")]
        self.target = None if s["framework"] == "simsiam" else Net(short, seed, 128, 512, dtype)
        self.optimizer = self.make_optimizer(rows)
        self.queue = None
        if s["framework"] == "moco":
            count = s["queue"] * s["features"]
            drawn = centered(seed, 640, count).reshape(-1, s["features"]).astype(np.float64)
            unit = drawn / np.sqrt((drawn ** 2).sum(1, keepdims=True))
            self.queue = torch.from_numpy(unit.astype(np.float32)).to(dtype)
        self.filter = None
        self.confident = stage == 2 and s["stage2"] == "confident"
        if stage == 2 and s["boundary"] or s["framework"] == "propos" or self.confident:
            self.filter = self.make_clusters(short)
        self.losses, self.schedule, self.kept, self.near = [], [], [], []

    def make_optimizer(self, rows):
        groups = [{"params": [p for name, p in self.online.p.items()
                              if name.startswith("predictor") == which]} for which in (False, True)]
        optimizer = torch.optim.SGD(groups[:1 + bool(groups[1]["params"])], lr=1,
                                    momentum=self.s["momentum"], weight_decay=self.s["decay"])
        for t, (name, shape, _, scale) in enumerate(tensors_of(rows)):
            v = centered(self.seed, 256 + t, math.prod(shape)) \
                * (np.float32(scale) * np.float32(0.0625))
            optimizer.state[self.online.p[name]]["momentum_buffer"] = \
                from_blocks(name, shape, v, self.dtype)
        return optimizer

    def make_clusters(self, rows):
        """From the features of all images without the noise of a view; always in float64, and with a
        separate network, since these values are given."""
        first = (0, 384) if self.target is None else (128, 512)
        net = Net(rows, self.seed, *first, torch.float64)
        images = torch.from_numpy(pixels(self.seed, np.arange(IMAGES), 0.5)).double()
        with torch.no_grad():
            found = cluster(F.normalize(net.project(images, 1), dim=1))
        return found[0], found[1].to(self.dtype)

    def groups(self):
        return BATCH // self.s["bn_group"] if self.s["bn_group"] else 1

    def scatters(self, s):
        """Whether prototypes and noise are there at step s."""
        if self.confident:
            return True
        epoch = (FIRST[self.stage] + s - 1) // (IMAGES // BATCH)
        return self.s["framework"] == "propos" and epoch >= self.s["prototype_epoch"] and \
            (self.stage == 1 or self.s["prototypes_stage2"])

    def online_pass(self, images, s, v):
        """The rows that are compared (unit length), and z of the projector; both with gradients."""
        z = self.online.project(images, self.groups())
        seen = z
        if self.scatters(s):
            seen = z + self.s["positive_noise"] * noise(s, v, z.shape[1]).to(self.dtype)
        return F.normalize(self.online.head("predictor", seen, self.groups()), dim=1), z

    def target_pass(self, images, step):
        with torch.no_grad():
            if not self.s["shuffle_bn"]:
                return F.normalize(self.target.project(images, self.groups()), dim=1)
            order = torch.from_numpy(shuffles()[step])
            shuffled = self.target.project(images[order], self.groups())
            return F.normalize(shuffled[order.argsort()], dim=1)

    def average(self, m):
        with torch.no_grad():
            for name, p in self.target.p.items():
                p.mul_(m).add_(self.online.p[name], alpha=1 - m)

    def choose(self, keys, ids, share):
        """Neighbors and kept anchors from the keys that the loss pulls towards."""
        n = len(keys)
        if self.stage == 1:
            return torch.arange(n)[:, None], torch.ones(n, dtype=self.dtype)
        near = neighbors(keys, self.s, self.margins)
        if self.filter is None:
            return near, torch.ones(n, dtype=self.dtype)
        labels, centroids = self.filter
        return near, keep(keys, labels[ids], centroids, share, self.s, self.margins)

    def confident_loss(self, q, z, keys, labels):
        """One half; labels: -1 for rows that are not confident."""
        s, kept = self.s, labels >= 0
        return -s["confident_byol"] * (q * keys).sum(1).mean() \
            + s["confident_pull"] * alike(q, keys, labels) \
            + s["confident_prototypes"] / 2 * scatter(z[kept], keys[kept], labels[kept],
                                                      s["prototype_temperature"])

    def conr_loss(self, q, z, keys, share, s):
        """The loss of CoNR, or of stage 1; and what was chosen for each half."""
        chosen = [self.choose(k, self.ids[s], share) for k in keys]
        loss = sum(half(*x, *c, self.s, self.queue) for *x, c in zip(q, keys, chosen))
        loss = loss * (0.5 if self.s["framework"] == "simsiam" else 1)
        if self.scatters(s):
            labels = self.filter[0][self.ids[s]]
            loss = loss + self.s["prototypes"] / 2 * sum(
                scatter(*x, labels, self.s["prototype_temperature"]) for x in zip(z, keys))
        return loss, chosen

    def step(self, s, draw):
        """In the order of the method: rates; forward, online a and b, target b and a; loss; moving
        average; backward and SGD; queue."""
        framework = self.s["framework"]
        rates = schedule(self.stage, self.s, FIRST[self.stage] + s)
        lr, predictor_lr, m, share = rates
        a, b = (torch.from_numpy(view(self.seed, draw, self.ids[s], s, v)).to(self.dtype)
                for v in (0, 1))
        if framework == "moco":
            self.average(m)
        (q_a, z_a), (q_b, z_b) = self.online_pass(a, s, 0), self.online_pass(b, s, 1)
        if framework == "simsiam":
            k_a, k_b = (F.normalize(z.detach(), dim=1) for z in (z_a, z_b))
        else:
            k_b = self.target_pass(b, s)
            k_a = self.target_pass(a, s)
        if self.confident:
            labels = self.filter[0][self.ids[s]]
            trusted = [confident(k, labels, self.s["confident_k"], self.margins)
                       for k in (k_b, k_a)]
            loss = sum(self.confident_loss(*x)
                       for x in zip((q_a, q_b), (z_a, z_b), (k_b, k_a), trusted))
            chosen = [(x[:, None], x >= 0) for x in trusted]
        else:
            loss, chosen = self.conr_loss((q_a, q_b), (z_a, z_b), (k_b, k_a), share, s)
        if framework in ("byol", "propos") and self.s["target_update"] == "before":
            self.average(m)
        self.optimizer.zero_grad()
        (loss * (self.s["stage2_loss_scale"] if self.stage == 2 else 1)).backward()
        for group, rate in zip(self.optimizer.param_groups, (lr, predictor_lr)):
            group["lr"] = rate
        self.optimizer.step()
        if framework in ("byol", "propos") and self.s["target_update"] == "after":
            self.average(m)
        if framework == "moco":
            assert (FIRST[self.stage] - 1) * 2 * BATCH % self.s["queue"] == 0
            rows = (2 * BATCH * s + torch.arange(2 * BATCH)) % self.s["queue"]
            self.queue = self.queue.clone()
            self.queue[rows] = torch.cat([k_b, k_a])
        self.losses.append(loss.item())
        self.schedule.append(rates)
        self.near.append(torch.stack([c[0] for c in chosen]))
        self.kept.append([int(c[1].sum()) for c in chosen])

    def blocks(self):
        """Name -> list of the tensors of that block, in its order and float64."""
        def weights(net):
            return [to_block(p) for p in net.p.values()]

        def running(net):
            return [to_block(x) for pair in net.running.values() for x in pair]

        state = self.optimizer.state
        out = {"w": weights(self.online), "running": running(self.online),
               "v": [to_block(state[p]["momentum_buffer"]) for p in self.online.p.values()]}
        if self.target:
            out.update(target=weights(self.target), target_running=running(self.target))
        if self.queue is not None:
            out["queue"] = [to_block(self.queue)]
        return out

    def run(self, draws):
        for s, draw in enumerate(draws):
            self.step(s, draw)
        return self

    def is_close(self):
        self.margins.see("ReLU", self.online.closest)
        return any(v <= (RELU_MARGIN if k == "ReLU" else MARGIN)
                   for k, v in self.margins.least.items())


def search(start):
    """The training after ten steps, each with the first draw that is not close to any threshold; and
    the draws."""
    draws = []
    for s in range(STEPS):
        draw, before = 0, start
        while True:
            draw += 1
            start = copy.deepcopy(before)
            start.step(s, draw)
            if not start.is_close():
                break
        draws.append(draw)
    return start, draws


# Comparing

def apart(one, other):
    """The greatest difference of losses, relative if above 1; and of any tensor, relative to its
    norm, with the name of that tensor."""
    loss = max(abs(x - y) / max(1, abs(x)) for x, y in zip(one.losses, other.losses))
    left, right = one.blocks(), other.blocks()
    return loss, max((np.linalg.norm(x - y) / np.linalg.norm(x), f"{block} {i}")
                     for block in left for i, (x, y) in enumerate(zip(left[block], right[block])))


def same_choices(one, other):
    return one.kept == other.kept and all(
        torch.equal(x.sort(2).values, y.sort(2).values) for x, y in zip(one.near, other.near))


FLIPS = {  # what an incorrect program might do instead
    "target_update": {"before": "after", "after": "before"},
    "resymmetrize": {True: False, False: True},
    "neighborhood": {"conaff": "local", "local": "conaff"},
    "loss_mean": {"kept": "batch", "batch": "kept"},
    "normalize_centroids": {True: False, False: True},
    "boundary": {True: False},
    "stage2_loss_scale": {1: 0.25, 0.25: 1},
    "bn_group": {0: BATCH // 2, BATCH // 2: 0},
    "shuffle_bn": {True: False},
    "decay": {5e-4: 0},
    "momentum": {0.9: 0.8},
    "k": {5: 4, 9: 8},
    "prototypes": {1: 0.5, 2: 1},
    "prototype_temperature": {0.5: 0.25, 0.25: 0.5},
    "prototype_epoch": {3: 2},
    "positive_noise": {0.05: 0},
    "prototypes_stage2": {True: False},
    "stage2": {"confident": "conr"},
    "stage2_average": {0.9: 0},
    "confident_k": {3: 2},
    "confident_pull": {1: 0.5, 0.5: 1},
    "confident_prototypes": {1: 0.5, 2: 1},
    "confident_byol": {1: 0.5, 0.75: 1},
}
MATTERS = {"target_update": ("byol", "propos"), "prototypes": ("propos",),
           "prototype_temperature": ("propos",)}  # otherwise for every framework
STAGE_2 = ("resymmetrize", "neighborhood", "loss_mean", "normalize_centroids", "boundary",
           "stage2_loss_scale", "k", "prototypes_stage2", "stage2", "stage2_average", "confident_k",
           "confident_pull", "confident_prototypes", "confident_byol")
CONR = ("resymmetrize", "neighborhood", "loss_mean", "normalize_centroids", "boundary", "k",
        "prototypes", "prototypes_stage2")  # of no use to the confident stage 2


def flips(stage, s):
    """Settings that differ from s in one switch, by the name of the switch."""
    s = {**DEFAULTS, **s}
    for key, other in FLIPS.items():
        if (stage == 1 and key in STAGE_2) or s[key] not in other \
                or s["framework"] not in MATTERS.get(key, (s["framework"],)):
            continue
        if s["stage2"] == "confident" and key in CONR:
            continue
        if s["stage2"] == "conr" and key.startswith("confident_"):
            continue
        if not s["boundary"] and key in ("loss_mean", "normalize_centroids"):
            continue
        if s["neighborhood"] == "local" and key == "resymmetrize":
            continue
        yield key, {**s, key: other[s[key]]}


# The file

def digest(x):
    if len(x) <= 32:
        return x
    i = np.arange(len(x))
    signs = [np.where(u(0, 800 + p, i) < 0.5, -1.0, 1.0) for p in range(3)]
    return np.array([np.linalg.norm(x), *(sign @ x for sign in signs),
                     *(x[(2 * j + 1) * len(x) // 16] for j in range(8))])


def framework_tables(s):
    rows = all_layers(s)
    parts = tensors_of(rows)
    count = [math.prod(shape) for _, shape, *_ in parts]
    at, end = [], 0
    for c in count:
        at.append(-(-end // 16) * 16)
        end = at[-1] + c
    short = [r for r in rows if not r["name"].startswith("predictor")]
    of_target = [len(tensors_of(short)), sum(r["norm"] for r in short)]
    tables = {"projector": head(s, "projector"), "count": count, "at": at,
              "offset": np.float32([o for *_, o, _ in parts]),
              "scale": np.float32([x for *_, x in parts]),
              "norms": [r["co"] for r in rows if r["norm"]],
              "of_target": [0, 0] if s["framework"] == "simsiam" else of_target}
    if head(s, "predictor"):
        tables["predictor"] = head(s, "predictor")
    return tables


def case_tensors(name, draws, exact, single):
    """The content of the file for a case, from its runs in float64 and in float32."""
    seed, blocks = exact.seed, exact.blocks()
    rows = all_layers(exact.s)
    net = Net(rows, seed, 0, 384, torch.float32)
    last = exact.target and Net(list(exact.target.rows.values()), seed, 128, 512, torch.float32)
    t = {"case": [seed, exact.stage, FIRST[exact.stage]], "draw": draws,
         "check": np.concatenate([
             view(seed, draws[0], exact.ids[0], 0, 0).ravel()[:4],
             view(seed, draws[9], exact.ids[9], 9, 1).ravel()[-4:],
             to_block(next(iter(net.p.values())))[:4],
             to_block(list((last or net).p.values())[-1])[-4:]]),
         "schedule": np.array(exact.schedule, float), "loss": np.array(exact.losses),
         "loss32": np.array(single.losses)}
    if exact.filter:
        t.update(label=exact.filter[0], centroid=exact.filter[1])
    if exact.confident:
        t.update(alike=torch.stack(exact.near)[..., 0])
    elif exact.stage == 2:
        t.update(kept=exact.kept, near=exact.near[0])
    t.update({block: np.concatenate([digest(x) for x in parts])
              for block, parts in blocks.items()})
    if name in FULL:
        t.update({f"{block}.full": np.concatenate(blocks[block])
                  for block in ("w", "target") if block in blocks})
    return {f"{name}.{key}": value for key, value in t.items()}


def settings_text(s):
    return "\n".join(f"{k}: {str(v).lower() if isinstance(v, bool) else v}" for k, v in s.items())


def run_case(name, seed, stage, s):
    """The runs of a case, after checking everything that must hold."""
    exact, draws = search(Training(seed, stage, s, torch.float64))
    single = Training(seed, stage, s, torch.float32).run(draws)
    moved = [Training(seed, stage, s, torch.float32, np.random.default_rng(number)).run(draws)
             for number in range(3)]
    assert all(same_choices(exact, other) for other in [single, *moved]), name
    losses, worst = zip(*(apart(exact, other) for other in [single, *moved]))
    m, (away, where) = exact.margins, max(worst)
    print(f"{name}: draws {draws}\n    float32 within {away:.1e} ({where}), loss {max(losses):.1e}",
          "\n    margins", ", ".join(f"{k} {v:.1e}" for k, v in m.least.items()))
    assert away < APART and max(losses) < APART / 10, name
    if m.entries:
        print(f"    {m.not_local} of {m.entries} neighbors not among the nearest,",
              f"{m.filled} filled up")
        assert m.not_local > 0.1 * m.entries, name
    if m.anchors:
        print(f"    {m.removed} of {m.anchors} anchors removed")
        assert m.removed > 0, name
    check_flips(name, seed, stage, s, draws, exact)
    return draws, exact, single


def check_flips(name, seed, stage, s, draws, exact):
    """Checks that each switch changes the losses or some tensor by ten times what a test allows."""
    moved = {key: apart(exact, Training(seed, stage, other, torch.float64).run(draws))
             for key, other in flips(stage, s)}
    print("    switched:", ", ".join(f"{key} {loss:.0e} {where[0]:.0e}"
                                     for key, (loss, where) in moved.items()), flush=True)
    for key, (loss, (away, _)) in moved.items():
        assert loss > BOUND or away > 10 * BOUND, (name, key)


def make_all():
    tensors = {"id": image_ids(), "shuffle": shuffles()}
    for s in (BYOL, SIMSIAM, MOCO, PROPOS):
        tensors.update({f"{s['framework']}.{k}": v for k, v in framework_tables(s).items()})
    for name, case in CASES.items():
        tensors.update(case_tensors(name, *run_case(name, *case)))
    notes = {name: settings_text(s) for name, (_, _, s) in CASES.items()}
    return make.pack({k: np.asarray(v) for k, v in tensors.items()},
                     {"made_by": "golden/make_train.py", "version": "1",
                      "torch": torch.__version__, "numpy": np.__version__, **notes})


def main():
    torch.set_num_threads(1)  # a fixed order of sums
    torch.use_deterministic_algorithms(True)
    path, data = make.HERE / "train.safetensors", make_all()
    if "--check" not in sys.argv[1:]:
        path.write_bytes(data)
        return print(f"{path.name}: {len(data)} bytes, {len(make.unpack(data))} tensors")
    verdict = make.check(path.name, data)
    print(f"{path.name}: {verdict}")
    return sys.exit(int(verdict != "same"))


if __name__ == "__main__":
    main()
