#!/usr/bin/env python3
"""Compares conr.neighbors with the C function that it wraps, and with the same computation in torch.

    make && python3 bench/python.py [--threads N]
    make cuda && CONR_LIBRARY=build-cuda/libconr.so python3 bench/python.py --cuda

conr.neighbors on a batch (n = 1024, d = 256, k = k1 = 10, k2 = 2) should be within 5 % of the C
function.  Times are medians of alternating runs, so that other load on the machine affects all
equally.  torch is skipped if it is not installed.

--cuda: batches of 256 and 1024 rows on a GPU: in place, through the host and back, and with torch
operations.  Times are the best of many runs of several calls; "returns" is the time that the calling
thread spends in a call, "done" the time until the GPU has finished, too.
"""
import argparse
import ctypes
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "python")]
from peers import Conr, mixture, pointer  # noqa: E402

import conr  # noqa: E402
from conr._library import _find  # noqa: E402


def torch_neighbors(torch, x, k=10, k1=10, k2=2):
    """The dense computation: two n x n products, and sorting."""
    x = torch.nn.functional.normalize(x, dim=1)
    s = x @ x.T
    s.fill_diagonal_(2)  # the row itself is always first
    ranked = s.topk(max(k1, k2), dim=1)[1]
    s.fill_diagonal_(1)
    r = torch.zeros_like(s).scatter_(1, ranked[:, :k1], 1.0)
    h = (r + r.T) / 2
    near = ranked[:, :k2]
    weight = s.gather(1, near).clamp(min=0) ** 2
    for layer in range(2):
        if layer:
            h = h + h.T
        h = torch.nn.functional.normalize((weight[:, :, None] * h[near]).sum(1), dim=1)
    s = h @ h.T
    s.fill_diagonal_(2)
    return s.topk(k, dim=1)[1]


def on_gpu(repeat, calls=10):
    import torch

    def best(call):
        call(), torch.cuda.synchronize()
        returns, done = [], []
        for _ in range(repeat):
            began = time.perf_counter()
            for _ in range(calls):
                call()
            returned = time.perf_counter()
            torch.cuda.synchronize()
            returns.append(returned - began)
            done.append(time.perf_counter() - began)
        return 1e6 * min(returns) / calls, 1e6 * min(done) / calls

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"{'neighbors, d = 256':<40} {'returns us':>10} {'done us':>10}")
    for n in (256, 1024):
        x = torch.from_numpy(mixture(n)).cuda()
        runs = {"conr.neighbors, CUDA tensor": lambda: conr.neighbors(x),
                "conr.neighbors, through the host": lambda: conr.neighbors(x.cpu()).cuda(),
                "torch operations on the GPU": lambda: torch_neighbors(torch, x)}
        for name, call in runs.items():
            print(f"{f'n = {n}, {name}':<40} {'%10.1f %10.1f' % best(call)}")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--repeat", type=int, default=60)
    p.add_argument("--cuda", action="store_true", help="use tensors on a GPU")
    a = p.parse_args()
    if a.cuda:
        return on_gpu(a.repeat)
    x = mixture(1024)
    c = Conr(_find(), a.threads)
    o = c.lib.conr_neighbors_defaults()
    import numpy as np

    ids = np.empty((1024, 10), np.int32)

    def c_call():
        c.call("conr_neighbors", c.context, pointer(x), ctypes.c_int64(1024), ctypes.c_int64(256),
               ctypes.byref(o), pointer(ids))

    runs = {"C call": c_call, "conr.neighbors": lambda: conr.neighbors(x, threads=a.threads)}
    try:
        import torch

        if a.threads:
            torch.set_num_threads(a.threads)
        t = torch.from_numpy(x)
        runs["conr.neighbors, tensor"] = lambda: conr.neighbors(t, threads=a.threads)
        runs[f"torch {torch.__version__}"] = lambda: torch_neighbors(torch, t)
        theirs = torch_neighbors(torch, t).sort(1)[0].numpy()
        same = (theirs == np.sort(conr.neighbors(x), 1)).mean()
        print(f"neighbors that torch finds, too: {100 * same:.1f} %")
    except ImportError:
        print("torch is not installed; skipped")
    taken = {name: [] for name in runs}
    for turn in range(a.repeat + 3):
        for name, call in runs.items():
            began = time.perf_counter()
            call()
            if turn >= 3:
                taken[name].append(time.perf_counter() - began)
    base = statistics.median(taken["C call"])
    print(f"{'neighbors, n = 1024, d = 256':<32} {'median ms':>10} {'best ms':>10} {'of C':>8}")
    for name, times in taken.items():
        median = statistics.median(times)
        print(f"{name:<32} {1e3 * median:>10.3f} {1e3 * min(times):>10.3f} {median / base:>8.3f}")


if __name__ == "__main__":
    main()
