#!/usr/bin/env python3
"""Compares conr with PyTorch on the CPU, in one run: features of a ResNet (forward, eval mode).

    bench/resnet.py [--conr build/conr] [--python PYTHON ...] [--encoder resnet50] [--size 224]
                    [--batch 32] [--threads 2] [--rounds 3]

Each PYTHON is an interpreter with torch and torchvision.  Their settings: eager, batch norms folded
into the convolutions (torch.fx), and torch.compile with frozen weights, each contiguous and
channels-last; the fastest is the peer.  The two alternate --rounds times, and the best of each
counts.  On a machine that others use, too, wall time says little: --cpu compares the processor time
of the best batch instead, divided by the threads (threads that wait sleep then)."""
import argparse, json, os, subprocess, sys

WORKER = r'''
import sys, json, time, warnings
warnings.filterwarnings("ignore")
import torch, torchvision
encoder, size, batch, threads, how, last, seconds, cpu = sys.argv[1:9]
size, batch, threads, seconds, last = int(size), int(batch), int(threads), float(seconds), last == "1"
clock = (lambda: time.process_time() / threads) if cpu == "1" else time.perf_counter
torch.set_num_threads(threads)
net = getattr(torchvision.models, encoder)(weights=None).eval()
net.fc = torch.nn.Identity()
x = torch.randn(batch, 3, size, size)
if last: net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
with torch.no_grad():
    if how == "folded":
        from torch.fx.experimental.optimization import fuse
        net = fuse(net)
        if last: net = net.to(memory_format=torch.channels_last)
    if how == "compile":
        import torch._inductor.config
        torch._inductor.config.freezing = True
        net = torch.compile(net)
    net(x)
    best, n, begin = 1e9, 0, time.time()
    while n < 2 or time.time() - begin < seconds:
        t = clock(); net(x); best = min(best, clock() - t); n += 1
print(json.dumps({"seconds": best, "torch": torch.__version__}))
'''


def torch_run(python, a, how, last, seconds):
    args = [python, "-c", WORKER, a.encoder, a.size, a.batch, a.threads, how, int(last), seconds, int(a.cpu)]
    done = subprocess.run(list(map(str, args)), capture_output=True, text=True, env=environment(a))
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def conr_once(a, seconds):
    """Seconds of the best step, steps that were timed, processor time of the whole program."""
    command = [a.conr, "bench", "train", "--forward", "--device", "cpu", "--encoder", a.encoder, "--stem", "imagenet",
               "--size", a.size, "--batch", a.batch, "--threads", a.threads, "--seconds", seconds, "--json"]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True, env=environment(a))
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit("conr bench train failed")
    result = json.loads(out)
    return result["seconds"], result["steps"], usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def conr_run(a, seconds):
    """Processor time of a step: what more steps add to that of the program."""
    best, steps, spent, mib = conr_once(a, seconds)
    if a.cpu:
        _, few, little, _ = conr_once(a, 0)
        while steps < few + 4:
            seconds *= 2
            _, steps, spent, _ = conr_once(a, seconds)
        best = (spent - little) / (steps - few) / a.threads
    return best, mib


def environment(a):
    return dict(os.environ, OMP_NUM_THREADS=str(a.threads), **({"OMP_WAIT_POLICY": "passive"} if a.cpu else {}))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--conr", default="build/conr")
    p.add_argument("--python", action="append")
    p.add_argument("--encoder", default="resnet50")
    p.add_argument("--size", type=int, default=224)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=8)
    p.add_argument("--cpu", action="store_true")
    a = p.parse_args()
    rate = lambda seconds: f"{a.batch / seconds:7.2f} images/s"
    trials = []
    for python in a.python or ["/usr/bin/python3"]:
        for how in ("eager", "folded", "compile"):
            for last in (False, True):
                r = torch_run(python, a, how, last, 1)
                layout = "channels-last" if last else "contiguous"
                print(f"  torch {r['torch'] if r else '?':<10} {how:8} {layout:14} "
                      f"{rate(r['seconds']) if r else 'does not run'}", flush=True)
                if r:
                    trials.append((r["seconds"], python, how, last, r["torch"]))
    if not trials:
        sys.exit("no torch with torchvision; name an interpreter that has them with --python")
    _, python, how, last, version = min(trials)
    ours, theirs = [], []
    for _ in range(a.rounds):
        ours.append(conr_run(a, a.seconds))
        theirs.append(torch_run(python, a, how, last, a.seconds)["seconds"])
        print(f"  round: conr {rate(ours[-1][0])}, torch {rate(theirs[-1])}", flush=True)
    o, t = min(ours)[0], min(theirs)
    print(f"{a.encoder}, {a.size} px, batch {a.batch}, {a.threads} threads, "
          f"{'processor' if a.cpu else 'wall'} time: conr {rate(o)} ({ours[0][1]:.0f} MiB), "
          f"torch {version} {how} {rate(t)}; conr is {t / o:.2f} times as fast")


if __name__ == "__main__":
    main()
