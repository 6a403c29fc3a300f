#!/usr/bin/python3
"""Compares neighborhoods with those of other libraries, in one run on the same features.

    bench/neighbors.py build/libconr.so [--threads 2] [--rows 60000]

Contextually affinitive neighbors of batches and of a whole set.  The peers are: for the plain
nearest neighbors inside, the exact search of faiss (IndexFlatIP) and the brute force of
scikit-learn; for the affinitive ones of a batch, the same steps with dense NumPy matrices, which is
what one would write without conr.  Needs python3-sklearn and python3-faiss; about BLAS, see
kmeans.py.
"""
import argparse
import resource
import time

import numpy as np

import peers


def best(run, repeat):
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - start)
    return min(times), result


def dense(x, k=10, k1=10, k2=2, layers=2):
    s = x @ x.T
    np.fill_diagonal(s, 1)
    order = np.argsort(-s, 1, "stable")
    n = len(x)
    r = np.zeros((n, n), np.float32)
    np.put_along_axis(r, order[:, :k1], 1, 1)
    w = np.zeros((n, n), np.float32)
    np.put_along_axis(w, order[:, :k2], np.maximum(np.take_along_axis(s, order[:, :k2], 1), 0) ** 2, 1)
    h = (r + r.T) / 2
    for layer in range(layers):
        h = w @ (h + h.T if layer else h)
        h /= np.linalg.norm(h, axis=1, keepdims=True)
    return np.argsort(-(h @ h.T), 1, "stable")[:, :k]


def by_faiss(x, k, threads):
    import faiss
    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatIP(x.shape[1])
    index.add(x)
    return index.search(x, k)[1]


def by_sklearn(x, k):
    from sklearn.neighbors import NearestNeighbors
    return NearestNeighbors(n_neighbors=k, algorithm="brute", n_jobs=2).fit(x).kneighbors(x)[1]


def show(n, what, who, seconds, ours):
    print(f"{n:6} {what:10} {who:14} {1e3 * seconds:12.2f} ms {seconds / ours:8.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=60000)
    a = parser.parse_args()
    conr, whole = peers.Conr(a.library, a.threads), peers.mixture(a.rows)
    print(f"{'n':>6} {'what':10} {'who':14} {'time':>15} {'to conr':>8}")
    for n, repeat in ((256, 300), (1024, 100), (a.rows, 1)):
        x = np.ascontiguousarray(whole[:n])
        ours, ids = best(lambda: conr.neighbors(x), repeat)
        show(n, "affinitive", "conr", ours, ours)
        if n == a.rows:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"{n:6} peak memory of the process so far: {peak:.0f} MiB, "
                  f"of which features {x.nbytes / 2 ** 20:.0f} MiB twice", flush=True)
        if n <= 3000:
            theirs, lists = best(lambda: dense(x), max(repeat // 20, 1))
            same = np.mean([len(set(p) & set(q)) / len(p) for p, q in zip(ids, lists)])
            show(n, "affinitive", "numpy dense", theirs, ours)
            print(f"{n:6} lists of the two agree on {100 * same:.2f} % (float32 ties may swap)")
        ours, ids = best(lambda: conr.neighbors(x, local=True), repeat)
        show(n, "local", "conr", ours, ours)
        theirs, lists = best(lambda: by_faiss(x, 10, a.threads), max(repeat // 5, 1))
        show(n, "local", "faiss flat", theirs, ours)
        same = np.mean([len(set(p) & set(q)) / len(p) for p, q in zip(ids, lists)])
        print(f"{n:6} lists of the two agree on {100 * same:.2f} %")
        if n <= 3000:
            show(n, "local", "scikit-learn", best(lambda: by_sklearn(x, 10), 5)[0], ours)


if __name__ == "__main__":
    main()
