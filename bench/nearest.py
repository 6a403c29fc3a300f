#!/usr/bin/python3
"""Compares nearest neighbors of every row of a large set with the indices of faiss, in one run.

    bench/nearest.py build/libconr.so [--threads 2] [--rows 100000] [--features F.npy ...]
                     [--recall 0.99] [--repeat 3] [--searched 20000] [--peers ivf,hnsw]

Each search must find the share --recall of the 10 nearest (the row itself left out), counted on 1000
rows that are searched exactly; building the index is included.  The indices of faiss get the
smallest nprobe or efSearch that reaches the share, from a list, for free: the time of finding it is
not counted, whereas conr chooses within its time.  They search --searched rows and are scaled to all
of them (0: all).  Runs alternate; the best of --repeat counts, in seconds of the clock and of the
processors, the latter for machines that others use, too.

Sets: a mixture (peers.py), and --features enlarged to --rows: copies of each row with noise that
makes a copy about as far from it as its third neighbor.  Needs faiss.
"""
import argparse
import os
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # waiting is not computing

import numpy as np

import peers

NEAR = 10


def unit(x):
    return (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30)).astype(np.float32)


def enlarge(x, rows, seed=1):
    rng = np.random.default_rng(seed)
    x = unit(x.astype(np.float32))
    if x.shape[1] > 256:
        mean = x.mean(0)
        x = unit(x @ np.linalg.svd((x - mean).T @ (x - mean))[0][:, :256])
    some = rng.choice(len(x), 1000, replace=False)
    s = x[some] @ x.T
    s[np.arange(1000), some] = -2
    third = np.sqrt(np.maximum(2 - 2 * np.partition(s, -3, 1)[:, -3], 0))
    sigma = np.median(third) / np.sqrt(x.shape[1])
    order, out = rng.permutation(rows) % len(x), np.empty((rows, x.shape[1]), np.float32)
    for a in range(0, rows, 50000):
        part = x[order[a:a + 50000]]
        out[a:a + 50000] = unit(part + sigma * rng.standard_normal(part.shape, dtype=np.float32))
    return out


class Truth:
    """Exact neighbors of some rows; a row as near as the last of them counts as found."""

    def __init__(self, x, rows=1000):
        self.x, self.some = x, np.random.default_rng(9).choice(len(x), rows, replace=False)
        self.last = np.empty(rows, np.float32)
        for a in range(0, rows, 100):
            s = x[self.some[a:a + 100]] @ x.T
            self.last[a:a + 100] = np.partition(s, -NEAR, 1)[:, -NEAR]

    def recall(self, ids):
        """ids: of the rows `some`."""
        rows = self.x[np.maximum(ids, 0)]
        s = np.einsum("qd,qkd->qk", self.x[self.some], rows)
        good = (s >= self.last[:, None] - 1e-6) & (ids != self.some[:, None]) & (ids >= 0)
        return good.sum(1).clip(max=NEAR - 1).mean() / (NEAR - 1)


def timed(run):
    wall, cpu = time.perf_counter(), time.process_time()
    result = run()
    return np.array([time.perf_counter() - wall, time.process_time() - cpu]), result


def ivf(faiss, x, lists):
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(x.shape[1]), x.shape[1], lists,
                               faiss.METRIC_INNER_PRODUCT)
    index.train(x)
    index.add(x)
    return index, "nprobe", (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def hnsw(faiss, x, m):
    index = faiss.IndexHNSWFlat(x.shape[1], m, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = 40
    index.add(x)
    return index, "efSearch", (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


def by_faiss(x, make, truth, wanted, searched):
    spent, (index, what, values) = timed(make)
    for value in values:
        (setattr(index, what, value) if what == "nprobe" else setattr(index.hnsw, what, value))
        recall = truth.recall(index.search(x[truth.some], NEAR)[1])
        if recall >= wanted:
            break
    rows = x[:searched] if searched else x
    search, _ = timed(lambda: index.search(rows, NEAR))
    return spent + search * (len(x) / len(rows)), recall, f"{what} {value}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=100000)
    parser.add_argument("--features", nargs="*", default=[])
    parser.add_argument("--recall", type=float, default=0.99)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--searched", type=int, default=20000)
    parser.add_argument("--peers", default="ivf,hnsw")
    parser.add_argument("--no-mixture", action="store_true")
    a = parser.parse_args()
    import faiss
    faiss.omp_set_num_threads(a.threads)
    conr = peers.Conr(a.library, a.threads)
    sets = [] if a.no_mixture else [("mixture", lambda: peers.mixture(a.rows))]
    sets += [(os.path.basename(f), lambda f=f: enlarge(np.load(f), a.rows)) for f in a.features]
    root = int(np.sqrt(a.rows))
    print(f"{'set':20} {'who':16} {'seconds':>9} {'to conr':>8} {'cpu s':>9} {'to conr':>8} "
          f"{'recall':>7}")
    for name, make in sets:
        x = make()
        truth = Truth(x)
        runs = [("conr", None)]
        if "ivf" in a.peers:
            runs += [(f"faiss IVF {n}", lambda n=n: ivf(faiss, x, n)) for n in (root // 2, root)]
        if "hnsw" in a.peers:
            runs += [(f"faiss HNSW {m}", lambda m=m: hnsw(faiss, x, m)) for m in (16, 32)]
        best = {}
        for turn in range(a.repeat):
            for who, build in runs:
                if build:
                    spent, recall, how = by_faiss(x, build, truth, a.recall, a.searched)
                else:
                    spent, ids = timed(lambda: conr.neighbors(x, NEAR, True, a.recall))
                    recall, how = truth.recall(ids[truth.some]), ""
                best[who] = np.minimum(spent, best.get(who, spent))
                if turn == a.repeat - 1:
                    to = best[who] / best["conr"]
                    print(f"{name:20} {who:16} {best[who][0]:9.2f} {to[0]:8.2f} {best[who][1]:9.2f} "
                          f"{to[1]:8.2f} {recall:7.4f} {how}", flush=True)


if __name__ == "__main__":
    main()
