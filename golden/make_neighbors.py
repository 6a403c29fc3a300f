#!/usr/bin/python3
"""Golden lists of contextually affinitive neighbors, by plain dense NumPy.

    golden/make_neighbors.py            write neighbors.safetensors next to this script
    golden/make_neighbors.py --check    compute it again and compare with the file

Needs numpy, and golden/make.py for the file format. Follows docs/neighborhoods.md, with every stored
value (S, weights, H, H H^T) rounded to float32 and every sum taken in float64 in ascending order.

All cases, concatenated:
    shape I32 [cases,8] = n, d, k, k1, k2, layers, resymmetrize, local
    alpha F32 [cases]
    x     F32, n*d values per case
    ids   I32, n*min(k,n) values per case

Sums of float32 products round differently from machine to machine, so a random case is drawn again
until its lists stay the same if every S changes by some 1e-6. The cases called exact have features
whose S is exact in float32; they consist of ties, which must be resolved by the lower index.
"""
import sys

import numpy as np

import make

SEED = 31


def rank(value, own):
    """Columns in order: the own one, then by larger value, then by lower index."""
    order = np.lexsort((np.arange(len(value)), -value))
    return np.concatenate(([own], order[order != own]))


def similarities(x, nudge):
    norm = np.sqrt((x.astype(np.float64) ** 2).sum(1))
    unit = np.where(norm[:, None] > 0, x / np.where(norm > 0, norm, 1)[:, None], 0)
    unit = unit.astype(np.float32).astype(np.float64)
    exact = (unit[:, None, :] * unit[None, :, :]).sum(2)
    # equal values change equally, so that ties remain ties
    return (exact + nudge * np.sin(1e7 * np.round(exact, 10))).astype(np.float32)


def propagate(h, s, order, k2, alpha):
    n, out = len(h), np.zeros_like(h)
    for i in range(n):
        total = np.zeros(n)
        for j in sorted(order[i][:k2]):
            weight = np.float32(max(np.float64(s[i, j]), 0) ** alpha) if j != i else np.float32(1)
            total += np.float64(weight) * h[j].astype(np.float64)
        total = total.astype(np.float32).astype(np.float64)
        size = np.sqrt(np.add.accumulate(total * total)[-1])
        out[i] = (total / size).astype(np.float32) if size > 0 else 0
    return out


def neighbors(x, k, k1, k2, layers, resymmetrize, local, alpha, nudge=0.0):
    n = len(x)
    k, k1, k2 = min(k, n), min(k1, n), min(k2, n)
    s = similarities(x, nudge)
    order = [rank(s[i], i) for i in range(n)]
    if local:
        return np.array([o[:k] for o in order])
    r = np.zeros((n, n), np.float32)
    for i in range(n):
        r[i, order[i][:k1]] = 1
    h = (r + r.T) / 2
    for layer in range(layers):
        if layer and resymmetrize:
            h = h + h.T
        h = propagate(h, s, order, k2, alpha)
    total = np.zeros((n, n))
    for c in range(n):  # one column after another: ascending order
        total += np.outer(h[:, c].astype(np.float64), h[:, c].astype(np.float64))
    total = total.astype(np.float32)
    lists = []
    for i in range(n):
        best = [j for j in rank(total[i], i) if j == i or total[i, j] > 0][:k]
        lists.append(best + [j for j in order[i] if j not in best][:k - len(best)])
    return np.array(lists)


# Features

def gaussian(rng, n, d):
    return rng.standard_normal((n, d))


def scaled(rng, n, d):
    """Rows of very different length."""
    return rng.standard_normal((n, d)) * 10 ** rng.uniform(-6, 6, (n, 1))


def unequal(rng, n, d):
    """Clusters of very different size: one of two rows, one of most."""
    of = np.minimum(rng.geometric(0.5, n) - 1, 4)
    return 2 * rng.standard_normal((5, d))[of] + 0.4 * rng.standard_normal((n, d))


def duplicates(rng, n, d):
    return rng.standard_normal((max(n // 3, 1), d))[rng.integers(0, max(n // 3, 1), n)]


def all_equal(rng, n, d):
    return np.tile(rng.standard_normal(d), (n, 1))


def one_hot(rng, n, d):
    return np.eye(d)[rng.integers(0, d, n)]


def with_zeros(rng, n, d):
    x = rng.standard_normal((n, d))
    x[rng.random(n) < 0.3] = 0
    return x


def zeros(rng, n, d):
    return np.zeros((n, d))


def lattice(rng, n, d):
    """Four entries of +-1 and a power of two: unit rows of +-1/2, S in quarters, ties everywhere."""
    x = np.zeros((n, d))
    for row in x:
        row[rng.choice(d, 4, replace=False)] = rng.choice([-1, 1], 4)
    return x * 2.0 ** rng.integers(-3, 4, (n, 1))


EXACT = (one_hot, zeros, lattice)
KINDS = (gaussian, scaled, unequal, duplicates, with_zeros, all_equal) + EXACT


def options(rng, number):
    """k, k1, k2, layers, resymmetrize, local, alpha"""
    alpha = [2, 2, 1, 3, 0.5][number % 5]
    if number % 4 == 0:
        return 10, 10, 2, 2, 1, 0, 2
    if number % 4 == 1:
        return (int(rng.integers(1, 9)), int(rng.integers(1, 14)), 1, int(rng.integers(1, 4)), 1, 0,
                alpha)
    if number % 4 == 2:
        return 7, 30, 10, 2, 1, 0, alpha
    return (int(rng.integers(1, 12)), int(rng.integers(1, 9)), int(rng.integers(1, 6)),
            int(rng.integers(0, 4)), int(rng.integers(2)), int(number % 8 == 3), alpha)


def make_case(rng, kind, number):
    chosen = options(rng, number)
    while True:
        n = [int(rng.integers(1, 34)), chosen[0], int(rng.integers(20, 40))][number % 3]
        d = int(rng.integers(4, 9))
        x = kind(rng, n, d).astype(np.float32)
        ids = neighbors(x, *chosen)
        if kind in EXACT or all((neighbors(x, *chosen, nudge=e) == ids).all()
                                for e in (1e-6, -1e-6, 2e-6)):
            return chosen, x, ids


def make_all(seed):
    rng, shape, alpha, xs, lists = np.random.default_rng(seed), [], [], [], []
    for number in range(27 * len(KINDS)):
        (*whole, power), x, ids = make_case(rng, KINDS[number % len(KINDS)], number // len(KINDS))
        shape.append([*x.shape, *whole])
        alpha.append(power)
        xs.append(x.ravel())
        lists.append(ids.ravel())
    tensors = {"shape": np.array(shape), "alpha": np.array(alpha, np.float32),
               "x": np.concatenate(xs), "ids": np.concatenate(lists)}
    return make.pack(tensors, {"made_by": "golden/make_neighbors.py", "version": "1",
                               "numpy": np.__version__, "seed": str(seed)})


def main():
    path, data = make.HERE / "neighbors.safetensors", make_all(SEED)
    if "--check" not in sys.argv[1:]:
        path.write_bytes(data)
        return print(f"{path.name}: {len(data)} bytes")
    sys.exit(0 if path.read_bytes() == data else f"{path.name}: differs")


if __name__ == "__main__":
    main()
