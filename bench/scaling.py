#!/usr/bin/env python3
"""The model of docs/scaling.md: the time of a step on N ranks.  Prints its tables.

    step(N) = compute(batch/N) + statistics + gather + exposed part of the average of gradients

Measured: a step on one GPU (SPEED.md).  Assumed: everything about links; change the lines below to
match yours.
"""
from math import log2

# --- communication per step: from the code, see docs/scaling.md ---
NETS = {
    # gradient: floats; sums: collectives for batch statistics per step; whole, ms: a batch and its time on
    # one H200
    "CIFAR ResNet-18": dict(gradient=16.44e6, sums=65, whole=256, ms=6.58, numbers=256),
    "224-px ResNet-34": dict(gradient=26.55e6, sums=113, whole=64, ms=14.1, numbers=256),
}
FLOOR_MS = 1.0  # a step with almost no images: some 350 kernels of a graph, and the update (assumed)

# --- links (assumed: machines of 8 H100/H200, NVLink inside, one 400 Gb/s card per GPU between) ---
GPUS = 8
INSIDE, BETWEEN = 350e9, 320e9  # bytes per second of a large all-reduce, the "busbw" of nccl-tests
LATENCY_INSIDE = 12e-6
LATENCY_BETWEEN = 8e-6  # added for each doubling of machines
NEIGHBORS_MS = 0.067  # both halves at 256, one H200; grows with the square of the batch (a guess beyond 1024)
BACKWARD = 0.55  # share of a step during which gradients can be sent


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
    print("| GPUs | batch | step, ms | of which statistics | gradients, if not hidden | images/s | efficiency | stage 2 adds, ms |")
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
    table("CIFAR ResNet-18", lambda n: 256 * n, "256 per GPU, statistics over all")
    table("CIFAR ResNet-18", lambda n: 256 * n, "256 per GPU, bn_group 256: statistics within a rank", False)
    table("224-px ResNet-34", lambda n: 256, "batch 256, statistics over all")
    table("224-px ResNet-34", lambda n: 64 * n, "64 per GPU, statistics over all")
