#!/usr/bin/env python3
"""Compares conr with PyTorch on the CPU, in one run: ResNet-18 (CIFAR stem), forward + backward, or a
whole BYOL step.

    bench/train.py [--byol] [--conr build/conr] [--python PYTHON ...] [--threads 2] [--batch 32] [--rounds 3]

A BYOL step passes both views through the online network with its heads (4096/256) and through the
target network; then loss, backward, SGD and the moving average.  conr also draws the views.

Each PYTHON is an interpreter with torch (Debian's /usr/bin/python3 with python3-torch, or a virtual
environment with a newer one); the fastest of them with its best setting (layout, mkldnn) is the
peer.  The two alternate --rounds times, and the best of each counts, because machines are noisy.
Memory is the peak minus the start of the program (after torch is imported).  Prints a table and the
ratios."""
import argparse, json, os, subprocess, sys, time

WORKER = r'''
import sys, json, time, resource, torch, torch.nn as nn, torch.nn.functional as F
threads, batch, last, mkldnn, seconds = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1", sys.argv[4] == "1", float(sys.argv[5])
byol = sys.argv[6] == "1"
torch.set_num_threads(threads)
def rss(key):
    return [int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(key)][0] / 1024
class Block(nn.Module):
    def __init__(s, i, o, stride):
        super().__init__()
        s.c1, s.b1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        s.c2, s.b2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        s.down = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride > 1 or i != o else None
    def forward(s, x):
        y = F.relu(s.b1(s.c1(x)), inplace=True)
        return F.relu(s.b2(s.c2(y)) + (s.down(x) if s.down else x), inplace=True)
layers, c = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)], 64
for i, w in enumerate((64, 128, 256, 512)):
    layers += [Block(c, w, 2 if i else 1), Block(w, w, 1)]; c = w
start = rss("VmRSS")
with torch.backends.mkldnn.flags(enabled=mkldnn):
    import copy
    def mlp(i): return nn.Sequential(nn.Linear(i, 4096), nn.BatchNorm1d(4096), nn.ReLU(inplace=True), nn.Linear(4096, 256))
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), *([mlp(512)] if byol else []))
    x, y = torch.randn(batch, 3, 32, 32), torch.randn(batch, 3, 32, 32)
    if last: net, x, y = (z.to(memory_format=torch.channels_last) for z in (net, x, y))
    target, predictor = copy.deepcopy(net) if byol else None, mlp(256)
    trained = list(net.parameters()) + list(predictor.parameters())
    sgd = torch.optim.SGD(trained, lr=0.01, momentum=0.9, weight_decay=5e-4)
    def step():
        if not byol: return net(x).sum().backward()
        q = [F.normalize(predictor(net(z)), dim=1) for z in (x, y)]
        with torch.no_grad(): k = [F.normalize(target(z), dim=1) for z in (y, x)]
        loss = -(q[0] * k[0]).sum(1).mean() - (q[1] * k[1]).sum(1).mean()
        loss.backward()
        with torch.no_grad():
            for a, b in zip(target.parameters(), net.parameters()): a.mul_(0.996).add_(b, alpha=0.004)
        sgd.step()
    best, begin, n = 1e9, time.time(), 0
    while n < 2 or time.time() - begin < seconds:
        for p in trained: p.grad = None
        t = time.perf_counter(); step(); t = time.perf_counter() - t
        if n: best = min(best, t)
        n += 1
print(json.dumps({"ms": 1e3 * best, "mib": rss("VmHWM") - start, "torch": torch.__version__}))
'''

def torch_run(python, threads, batch, channels_last, mkldnn, seconds, byol):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    args = [python, "-c", WORKER, str(threads), str(batch), str(int(channels_last)), str(int(mkldnn)), str(seconds), str(int(byol))]
    done = subprocess.run(args, capture_output=True, text=True, env=env)
    if done.returncode:
        sys.exit(f"{python}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)

def conr_run(conr, threads, batch, seconds, byol):
    command = [conr, "bench", "train", "--device", "cpu", "--threads", str(threads), "--batch", str(batch),
               "--seconds", str(seconds), "--recompute", "--json"] + (["--byol"] if byol else [])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit("conr bench train failed")
    result = json.loads(out)
    return {"ms": 1e3 * result["seconds"], "mib": usage.ru_maxrss / 1024, "parts": result["parts"]}

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--conr", default="build/conr")
    p.add_argument("--python", action="append")
    p.add_argument("--byol", action="store_true")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=4)
    a = p.parse_args()
    pythons = a.python or ["/usr/bin/python3"]

    settings = []  # (ms, python, channels_last, mkldnn, version) of a first trial of each
    for python in pythons:
        for channels_last in (False, True):
            for mkldnn in (True, False):
                r = torch_run(python, a.threads, a.batch, channels_last, mkldnn, 1, a.byol)
                print(f"  torch {r['torch']:<16} {'channels-last' if channels_last else 'contiguous':<13} "
                      f"mkldnn {'on ' if mkldnn else 'off'}  {r['ms']:9.1f} ms  {r['mib']:6.0f} MiB", flush=True)
                settings.append((r["ms"], python, channels_last, mkldnn, r["torch"]))
    _, python, channels_last, mkldnn, version = min(settings)
    ours, theirs = [], []
    for _ in range(a.rounds):
        ours.append(conr_run(a.conr, a.threads, a.batch, a.seconds, a.byol))
        theirs.append(torch_run(python, a.threads, a.batch, channels_last, mkldnn, a.seconds, a.byol))
        print(f"  round: conr {ours[-1]['ms']:.1f} ms, torch {theirs[-1]['ms']:.1f} ms", flush=True)
    o, t = min(ours, key=lambda r: r["ms"]), min(theirs, key=lambda r: r["ms"])
    o_mib, t_mib = max(r["mib"] for r in ours), min(r["mib"] for r in theirs)
    passes = sum(v for k, v in o["parts"].items() if k.startswith(("norm", "pools")))
    print(f"\n{'':24} {'ms per step':>10} {'peak MiB':>10}")
    print(f"{'conr':24} {o['ms']:10.1f} {o_mib:10.0f}")
    print(f"{'torch ' + version:24} {t['ms']:10.1f} {t_mib:10.0f}   ({'channels-last' if channels_last else 'contiguous'}, mkldnn {'on' if mkldnn else 'off'})")
    print(f"images per second: conr {1e3 * a.batch / o['ms']:.1f}, torch {1e3 * a.batch / t['ms']:.1f}")
    print(f"conr is {t['ms'] / o['ms']:.2f} times as fast, with {o_mib / t_mib:.2f} of the memory; norm + ReLU + pools are {100 * passes:.1f} % of its step")

if __name__ == "__main__":
    main()
