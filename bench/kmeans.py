#!/usr/bin/python3
"""Compares k-means with scikit-learn and faiss, in one run on the same features.

    bench/kmeans.py build/libconr.so [--restarts 10] [--threads 2] [--rows 60000]

Needs python3-sklearn and python3-faiss. Euclidean distance on unit rows, the same number of restarts
for all; scikit-learn with its defaults, faiss on all rows (`full`, 25 iterations, its default) and
with its defaults (`default`: it trains on a sample of 256 rows per cluster). Objectives are computed
here, in float64, from the centroids returned. BLAS is the one that the process finds: Debian's plain
libblas is slow, so put OpenBLAS or BLIS into LD_LIBRARY_PATH for a fair comparison. `cpu` is the time
of all threads together, which can also be compared on a busy machine.
"""
import argparse
import time

import numpy as np

import peers


def objective(x, centroids):
    total = 0.0
    c = centroids.astype(np.float64)
    for part in np.array_split(x, 60):
        part = part.astype(np.float64)
        d2 = (part ** 2).sum(1)[:, None] - 2 * part @ c.T + (c ** 2).sum(1)
        total += np.maximum(d2.min(1), 0).sum()
    return total


def by_sklearn(x, k, restarts):
    from sklearn.cluster import KMeans
    return KMeans(k, n_init=restarts, random_state=0).fit(x).cluster_centers_


def by_faiss(x, k, restarts, threads, **more):
    import faiss
    faiss.omp_set_num_threads(threads)
    run = faiss.Kmeans(x.shape[1], k, niter=25, nredo=restarts, seed=1, **more)
    run.train(x)
    return run.centroids


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=60000)
    parser.add_argument("--clusters", type=int, nargs="*", default=[10, 200])
    a = parser.parse_args()
    conr = peers.Conr(a.library, a.threads)
    print(f"{'features':10} {'K':>4} {'who':14} {'seconds':>8} {'cpu':>8} {'objective':>14} {'to conr':>8}")
    for name, x in peers.features(a.rows):
        for k in a.clusters:
            runs = {"conr": lambda: conr.kmeans(x, k, a.restarts),
                    "scikit-learn": lambda: by_sklearn(x, k, a.restarts),
                    "faiss full": lambda: by_faiss(x, k, a.restarts, a.threads,
                                                   max_points_per_centroid=10 ** 9),
                    "faiss default": lambda: by_faiss(x, k, a.restarts, a.threads)}
            ours = None
            for who, run in runs.items():
                start, cpu = time.perf_counter(), time.process_time()
                centroids = run()
                seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
                ours = ours or seconds
                print(f"{name:10} {k:4} {who:14} {seconds:8.2f} {cpu:8.2f} {objective(x, centroids):14.3f} "
                      f"{seconds / ours:8.2f}", flush=True)


if __name__ == "__main__":
    main()
