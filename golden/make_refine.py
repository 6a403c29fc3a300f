#!/usr/bin/python3
"""Golden refining: ten steps of a head on frozen features, by torch's autograd.

    golden/make_refine.py            write refine.safetensors next to this script
    golden/make_refine.py --check    compute it again and compare with the file

Needs torch, and golden/make.py for the file format. Everything is computed in float64 from values
that are exact in float32. A test should allow BOUND, relative to its norm, for the losses and for
each tensor; the same computation in float32 must stay within a third of that.

A step, written from the definition in src/refine/refine.h, for a batch of B rows i:
    a view sets the components of a row whose mask is 0 to 0 and multiplies the others by
    1/(1 - dropout)
    q_a = online(view a of i), q_b = online(view b of i): projector, then predictor; two batches
    the target's projector sees [view b of i; view b of j], then [view a of i; view a of j'], each
    as one batch of 2 B rows; j and j' are neighbors of i
    all rows are scaled to length 1
    loss = - sum_i w_i ( <q_a_i, (key_b_i + key_b_j)/2> + <q_b_i, (key_a_i + key_a_j')/2> )
    w_i = 1/(rows kept) for rows that are kept, else 0
    target <- m target + (1 - m) online, with the weights before the update
    SGD: g += 5e-4 w, v = 0.9 v + g, w -= lr v

refine.safetensors:
    x          F32 [N,d]         components of all rows
    dropout    F32 [1]
    row, near_b, near_a  I32 [10,B]   i, j, j' of each step
    mask       I32 [10,4,B,d]    of view a of i, view b of i, view b of j, view a of j'
    kept       I32 [10,B]
    lr, m      F32 [10]
    loss       F32 [10]
    start.NAME, online.NAME, target.NAME  F32, named as in nn.Sequential: projector.0.weight, ...;
                                 before the steps (both networks), and after them
"""
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import make

SEED, BOUND = 53, 1e-4
N, D, HIDDEN, WIDTH, B, K, STEPS, DROPOUT = 40, 7, 9, 5, 8, 4, 10, 0.25


class Head(nn.Module):
    def __init__(self, predicts):
        super().__init__()
        self.projector = self.mlp(D)
        self.predictor = self.mlp(WIDTH) if predicts else nn.Identity()

    @staticmethod
    def mlp(d_in):
        return nn.Sequential(nn.Linear(d_in, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(),
                             nn.Linear(HIDDEN, WIDTH))

    def forward(self, x):
        return F.normalize(self.predictor(self.projector(x)))


def draw(rng):
    """All that is given: components of rows of four kinds, and the draws."""
    x = rng.normal(size=(4, D))[np.arange(N) % 4] * 2 + rng.normal(size=(N, D))
    t = {"x": x.astype(np.float32), "dropout": np.float32([DROPOUT])}
    t["row"] = np.stack([rng.permutation(N)[:B] for _ in range(STEPS)])
    for name in ("near_b", "near_a"):
        t[name] = (t["row"] + 4 * rng.integers(1, K, (STEPS, B))) % N
    t["mask"] = (rng.random((STEPS, 4, B, D)) >= DROPOUT).astype(np.int32)
    t["kept"] = (rng.random((STEPS, B)) < 0.7).astype(np.int32)
    t["kept"][:, 0] = 1
    t["lr"] = (0.2 * (1 - np.arange(STEPS) / 12)).astype(np.float32)
    t["m"] = (0.9 + 0.01 * np.arange(STEPS)).astype(np.float32)
    return t


def average(target, online, m):
    of = dict(online.named_parameters())
    with torch.no_grad():
        for name, p in target.named_parameters():
            p.copy_(m * p + (1 - m) * of[name])


def run(t, start, dtype):
    """Losses, and both networks after the steps."""
    x = torch.tensor(t["x"], dtype=dtype)
    online, target = Head(True).to(dtype), Head(False).to(dtype)
    online.load_state_dict({k: v.to(dtype) for k, v in start.items()})
    target.load_state_dict({k: v.to(dtype) for k, v in start.items() if k.startswith("projector")})
    sgd = torch.optim.SGD(online.parameters(), lr=1, momentum=0.9,
                          weight_decay=float(np.float32(5e-4)))
    losses = []
    for s in range(STEPS):
        rows = [torch.tensor(t[k][s]) for k in ("row", "row", "near_b", "near_a")]
        a, b, near_b, near_a = (x[i] * torch.tensor(t["mask"][s, v], dtype=dtype) / (1 - DROPOUT)
                                for v, i in enumerate(rows))
        weight = torch.tensor(t["kept"][s], dtype=dtype)
        weight = weight / weight.sum()
        q_a, q_b = online(a), online(b)
        with torch.no_grad():
            key_b, key_a = target(torch.cat([b, near_b])), target(torch.cat([a, near_a]))
        halves = sum((q * (key[:B] + key[B:]) / 2).sum(1)
                     for q, key in ((q_a, key_b), (q_b, key_a)))
        loss = -(weight * halves).sum()
        sgd.zero_grad()
        loss.backward()
        average(target, online, float(t["m"][s]))
        sgd.param_groups[0]["lr"] = float(t["lr"][s])
        sgd.step()
        losses.append(loss.item())
    return np.array(losses), online.state_dict(), target.state_dict()


def distance(a, b):
    a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    return np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)


def make_all(seed):
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    t = draw(rng)
    start = {k: v for k, v in Head(True).state_dict().items()}
    loss, online, target = run(t, start, torch.float64)
    loss32, online32, target32 = run(t, start, torch.float32)
    errors = [distance(loss32, loss)]
    errors += [distance(online32[k], online[k]) for k in online if "num_batches" not in k]
    errors += [distance(target32[k], target[k]) for k in target if "num_batches" not in k]
    assert max(errors) < BOUND / 3, max(errors)
    moved = max(distance(start[k], online[k]) for k in online if k.endswith("weight"))
    assert moved > 100 * BOUND, moved
    t["loss"] = loss
    for name, state in (("start", start), ("online", online), ("target", target)):
        t.update({f"{name}.{k}": v.numpy() for k, v in state.items() if "num_batches" not in k})
    return make.pack(t, {"made_by": "golden/make_refine.py", "version": "1",
                         "torch": torch.__version__, "seed": str(seed)})


def main():
    path, data = make.HERE / "refine.safetensors", make_all(SEED)
    if "--check" not in sys.argv[1:]:
        path.write_bytes(data)
        return print(f"{path.name}: {len(data)} bytes")
    old, new = make.unpack(path.read_bytes()), make.unpack(data)
    far = [k for k in new if k not in old or distance(old[k], new[k]) > 1e-6]
    sys.exit(f"{path.name}: differs in {' '.join(far)}" if far or set(old) != set(new) else 0)


if __name__ == "__main__":
    main()
