#!/usr/bin/python3
"""Golden clusters of a neighbor graph, by NumPy and scikit-learn's SpectralClustering.

    golden/make_graph.py            write graph.safetensors next to this script
    golden/make_graph.py --check    compute it again and compare with the file

Needs numpy, scikit-learn, and golden/make.py for the file format. Everything is dense and in double:
cosines of all rows; R, the k1 nearest of each row and the row itself; A = (R + R^T)/2; the cosines
of the rows of A, of which each row keeps its k - 1 best (the affinities); W, the mean of that matrix
and its transpose. Then the eigenvalues of D^-1/2 W D^-1/2, and the labels that SpectralClustering
gives for the precomputed affinity W.

    shape   I32 [cases,6] = n, d, K, k, k1, eigenvalues
    x       F32, n*d values per case, concatenated, as all below
    ids     I32, n*k values per case: each row itself, then its best, ties to the lower row
    weights F32, the affinities of ids; 1 for the row itself
    values  F32, the largest eigenvalues
    labels  I32, n per case

A case is drawn again until no list hangs on a difference below 1e-6, and three seeds of k-means
give the same clusters.
"""
import sys

import numpy as np
import sklearn
from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score

import make

SEED = 41


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def best(values, k):
    """The k - 1 best columns of each row after the row itself, or None if it is a close call."""
    n = len(values)
    ids = np.zeros((n, k), int)
    for i in range(n):
        order = np.lexsort((np.arange(n), -values[i]))
        order = order[order != i]
        edge = values[i, order[k - 2]] - values[i, order[k - 1]]
        if 0 < edge < 1e-6:
            return None
        ids[i] = np.concatenate(([i], order[:k - 1]))
    return ids


def graph(x, k, k1):
    near = best(unit(x) @ unit(x).T, k1)
    if near is None:
        return None
    n, rows = len(x), np.arange(len(x))[:, None]
    r = np.zeros((n, n))
    r[rows, near] = 1
    h = unit((r + r.T) / 2)
    affinity = h @ h.T
    # exact ties must be ties in double, too
    ids = best(np.round(affinity, 9), k)
    if ids is None:
        return None
    w = np.zeros((n, n))
    w[rows, ids] = affinity[rows, ids]
    np.fill_diagonal(w, 0)
    weights = affinity[rows, ids]
    weights[:, 0] = 1
    return (w + w.T) / 2, ids, weights


def mixture(rng, n, d, classes, noise):
    label = rng.integers(0, classes, n)
    return rng.standard_normal((classes, d))[label] + noise * rng.standard_normal((n, d))


def moons(rng, n):
    """Two interleaved half circles, seen from above, so that cosines follow distances."""
    angle, upper = np.pi * rng.random(n), np.arange(n) % 2 == 0
    x = np.where(upper, np.cos(angle), 1 - np.cos(angle))
    y = np.where(upper, np.sin(angle), 0.4 - np.sin(angle))
    flat = np.stack([x, y], 1) - [0.5, 0.2] + 0.05 * rng.standard_normal((n, 2))
    return np.concatenate([np.full((n, 1), 0.8), flat], 1)


def case(rng, draw, n, K, k, k1):
    for _ in range(200):
        x = draw(rng).astype(np.float32)
        made = graph(x.astype(np.float64), k, k1)
        if made is None:
            continue
        w, ids, weights = made
        degree = w.sum(1)
        if degree.min() <= 0:
            continue
        values = np.linalg.eigvalsh(w / np.sqrt(np.outer(degree, degree)))[::-1][:K + 2]
        if values[1] > 1 - 1e-6 or values[K - 1] - values[K] < 0.004:
            continue  # connected, and with a gap after the K-th
        labels = [SpectralClustering(K, affinity="precomputed", random_state=s).fit_predict(w)
                  for s in range(3)]
        if all(adjusted_rand_score(labels[0], other) == 1 for other in labels[1:]):
            return x, ids, weights, values, labels[0]
    raise SystemExit("no case found")


def make_all(seed):
    rng = np.random.default_rng(seed)
    parts = {name: [] for name in ("x", "ids", "weights", "values", "labels")}
    shapes = []
    for draw, n, K, k, k1 in ((lambda r: mixture(r, 240, 12, 4, 0.7), 240, 4, 15, 12),
                              (lambda r: mixture(r, 150, 6, 7, 0.6), 150, 7, 12, 8),
                              (lambda r: moons(r, 120), 120, 2, 10, 8)):
        x, *rest = case(rng, draw, n, K, k, k1)
        shapes.append((n, x.shape[1], K, k, k1, K + 2))
        for name, value in zip(parts, (x, *rest)):
            parts[name].append(np.ravel(value))
    tensors = {"shape": np.array(shapes), **{k: np.concatenate(v) for k, v in parts.items()}}
    return tensors, {"made_by": "golden/make_graph.py", "version": "1", "seed": str(seed),
                     "numpy": np.__version__, "scikit-learn": sklearn.__version__}


def main():
    path, (tensors, metadata) = make.HERE / "graph.safetensors", make_all(SEED)
    if "--check" not in sys.argv[1:]:
        data = make.pack(tensors, metadata)
        path.write_bytes(data)
        return print(f"{path.name}: {len(data)} bytes")
    old = make.unpack(path.read_bytes())
    worst = max(np.abs(old[name] - np.asarray(value)).max() for name, value in tensors.items())
    sys.exit(0 if worst < 1e-6 else f"{path.name}: differs by {worst:.1e}")


if __name__ == "__main__":
    main()
