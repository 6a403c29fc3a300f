#!/usr/bin/python3
"""Golden scores of random labelings, by scikit-learn and SciPy.

    golden/make_metrics.py            write metrics.safetensors next to this script
    golden/make_metrics.py --check    compute it again and print by how much the file differs

Needs numpy, scikit-learn, scipy, and golden/make.py for the file format. Scores are needed to 1e-12,
so each is stored as the sum of two float32 values, high and low.

    labels  n I32 [cases], truth and pred I32, n values per case, concatenated; -1 in truth is
            unlabeled; scores F32 [cases,3,2]: NMI (arithmetic), ACC, ARI
    features.x F32 [n,d], features.labels I32 [n], features.scores F32 [3,2]: silhouette by cosine,
            by Euclidean distance, and weighted 20-NN accuracy at T = 0.07, each row against the
            others
"""
import sys

import numpy as np
import scipy.optimize
import sklearn
from sklearn import metrics

import make

SEED = 37


def two_parts(values):
    high = np.asarray(values, np.float64).astype(np.float32)
    low = (np.asarray(values, np.float64) - high).astype(np.float32)
    return np.stack([high, low], -1)


def scores(truth, pred):
    table = metrics.cluster.contingency_matrix(truth, pred)
    rows, cols = scipy.optimize.linear_sum_assignment(-table)
    return (metrics.normalized_mutual_info_score(truth, pred), table[rows, cols].sum() / len(truth),
            metrics.adjusted_rand_score(truth, pred))


def labeling(rng, number):
    n = int(rng.integers(1, 400)) if number % 7 else int(rng.integers(1, 6))
    truth = rng.integers(0, rng.integers(1, 25), n)
    pred = rng.integers(0, rng.integers(1, 40), n)
    if number % 3 == 0:  # mostly right
        pred = np.where(rng.random(n) < 0.8, (7 * truth + 3) % 31, pred)
    if number % 10 == 0:  # the same with other names
        pred = 1000000007 - 5 * truth
    if number % 4 == 0:
        truth = truth - 12
    if number % 5 == 0:
        truth = np.where(rng.random(n) < 0.3, -1, truth)
    if (truth == -1).all():
        truth[0] = 3
    return truth, pred


def knn_accuracy(x, labels, k=20, temperature=0.07):
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    similar = unit @ unit.T
    np.fill_diagonal(similar, -np.inf)
    right = 0
    for row, own in zip(similar, labels):
        best = np.argsort(-row)[:k]
        votes = np.bincount(labels[best], np.exp(row[best] / temperature), labels.max() + 1)
        right += votes.argmax() == own
    return right / len(x)


def make_all(seed):
    rng, lengths, truths, preds, all_scores = np.random.default_rng(seed), [], [], [], []
    for number in range(150):
        truth, pred = labeling(rng, number)
        lengths.append(len(truth))
        truths.append(truth)
        preds.append(pred)
        all_scores.append(scores(truth[truth != -1], pred[truth != -1]))
    labels = rng.integers(0, 6, 150)
    x = (rng.standard_normal((6, 12))[labels] + rng.standard_normal((150, 12))).astype(np.float32)
    labels[7] = 6  # a cluster of one
    wide = x.astype(np.float64)
    of_features = (metrics.silhouette_score(wide, labels, metric="cosine"),
                   metrics.silhouette_score(wide, labels), knn_accuracy(wide, labels))
    tensors = {"labels.n": np.array(lengths), "labels.truth": np.concatenate(truths),
               "labels.pred": np.concatenate(preds), "labels.scores": two_parts(all_scores),
               "features.x": x, "features.labels": labels,
               "features.scores": two_parts(of_features)}
    return tensors, {"made_by": "golden/make_metrics.py", "version": "1", "seed": str(seed),
                     "numpy": np.__version__, "scikit-learn": sklearn.__version__}


def main():
    path, (tensors, metadata) = make.HERE / "metrics.safetensors", make_all(SEED)
    if "--check" not in sys.argv[1:]:
        data = make.pack(tensors, metadata)
        path.write_bytes(data)
        return print(f"{path.name}: {len(data)} bytes")
    old = make.unpack(path.read_bytes())
    worst = max(np.abs(old[name] - np.asarray(value)).max() for name, value in tensors.items())
    sys.exit(0 if worst < 1e-7 else f"{path.name}: differs by {worst:.1e}")


if __name__ == "__main__":
    main()
