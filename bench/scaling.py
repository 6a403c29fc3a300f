#!/usr/bin/env python3
"""The model of docs/scaling.md: what a step of N ranks takes.  Prints its tables.

    step(N) = compute(batch/N) + statistics + gather + exposed part of the gradients' mean

Measured: one GPU's step (SPEED.md).  Assumed: everything about links; change the lines below for yours.
"""
from math import log2

# --- what is sent a step: by the code, see docs/scaling.md ---
NETS = {
    # gradient: floats; sums: collectives of batch statistics a step; whole: batch and its ms on one H200
    "CIFAR ResNet-18": dict(gradient=16.44e6, sums=65, whole=256, ms=6.58, numbers=256),
    "224-px ResNet-34": dict(gradient=26.55e6, sums=113, whole=64, ms=14.1, numbers=256),
}
FLOOR_MS = 1.0  # of a step with almost no images: some 350 kernels of a graph, and the update (assumed)

# --- links (assumed: H100/H200 boxes of 8, NVLink inside, one 400 Gb/s card a GPU between) ---
GPUS = 8
INSIDE, BETWEEN = 350e9, 320e9  # bytes a second of a large mean, as nccl-tests counts "busbw"
LATENCY_INSIDE = 12e-6
LATENCY_BETWEEN = 8e-6  # more for each doubling of machines
NEIGHBORS_MS = 0.067  # of both halves at 256, one H200; grows with the square of the batch (a guess beyond 1024)
BACKWARD = 0.55  # share of a step in which gradients can travel


def latency(n):
    return 0 if n == 1 else LATENCY_INSIDE + (LATENCY_BETWEEN * log2(n / GPUS) + 10e-6 if n > GPUS else 0)


def step(net, n, batch, shared=True):
    per_image = (net["ms"] - FLOOR_MS) * 1e-3 / net["whole"]
    compute = FLOOR_MS * 1e-3 + per_image * batch / n
    if n == 1:
        return compute, 0, 0
    rate = INSIDE if n <= GPUS else BETWEEN
    mean = 2 * (n - 1) / n * 4 * net["gradient"] / rate + latency(n)
    sums = net["sums"] * latency(n) if shared else 2 * latency(n)
    gather = 4 * batch * net["numbers"] * 4 * (n - 1) / n / rate + latency(n)
    exposed = max(mean - BACKWARD * compute, latency(n))
    return compute + sums + gather + exposed, sums, mean


def table(name, batch_of, title, shared=True):
    net = NETS[name]
    print(f"\n{name}, {title}\n")
    print("| GPUs | batch | step, ms | of it statistics | gradients, were they not hidden | images/s | efficiency | stage 2 adds, ms |")
    print("|---|---|---|---|---|---|---|---|")
    base = None
    for n in (1, 2, 4, 8, 16, 64, 256, 1024):
        batch = batch_of(n)
        if batch < n:
            continue
        total, sums, mean = step(net, n, batch, shared)
        rate = batch / total
        base = base or rate
        print(f"| {n} | {batch} | {1e3 * total:.2f} | {1e3 * sums:.2f} | {1e3 * mean:.2f} | {rate:,.0f} | {100 * rate / n / base:.0f} % | "
              f"{NEIGHBORS_MS * (batch / 256) ** 2:,.1f} |")


if __name__ == "__main__":
    table("CIFAR ResNet-18", lambda n: 256, "the paper's batch of 256, statistics over all")
    table("CIFAR ResNet-18", lambda n: 256 * n, "256 a GPU, statistics over all")
    table("CIFAR ResNet-18", lambda n: 256 * n, "256 a GPU, bn_group 256: statistics within a rank", False)
    table("224-px ResNet-34", lambda n: 256, "batch 256, statistics over all")
    table("224-px ResNet-34", lambda n: 64 * n, "64 a GPU, statistics over all")
