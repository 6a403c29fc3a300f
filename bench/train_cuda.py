#!/usr/bin/env python3
"""Compares conr with PyTorch on one GPU, in one run: a whole BYOL step.

    bench/train_cuda.py [--conr build-cuda/conr] [--batch 256] [--modes eager graph compile] [--seconds 3]
                        [--encoder resnet34 --stem imagenet --size 224] [--tune default]

Default: CIFAR ResNet-18, two views of --batch images of --size pixels, heads 4096/256, SGD with
momentum and weight decay, moving average.  For PyTorch the images are given (it draws no views).  It
runs in bf16 autocast, channels-last, both views as one batch, fused SGD: eager, captured in a CUDA
graph, and compiled in a CUDA graph; the fastest is the peer.  conr and the peer then alternate.
Prints a table and the ratio."""
import argparse, json, subprocess, sys, time

BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}

def torch_step(a, mode):
    batch = a.batch
    import torch, torch.nn as nn, torch.nn.functional as F
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True

    class Block(nn.Module):
        def __init__(s, i, o, stride):
            super().__init__()
            s.c1, s.b1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
            s.c2, s.b2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            s.down = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride > 1 or i != o else None
        def forward(s, x):
            y = F.relu(s.b1(s.c1(x)), inplace=True)
            return F.relu(s.b2(s.c2(y)) + (s.down(x) if s.down else x), inplace=True)

    def head(i):
        return nn.Sequential(nn.Linear(i, 4096), nn.BatchNorm1d(4096), nn.ReLU(inplace=True), nn.Linear(4096, 256))

    def encoder():
        first = nn.Conv2d(3, 64, 3, 1, 1, bias=False) if a.stem == "cifar" else nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        layers, c = [first, nn.BatchNorm2d(64), nn.ReLU(inplace=True)], 64
        if a.stem == "imagenet": layers.append(nn.MaxPool2d(3, 2, 1))
        for i, (w, blocks) in enumerate(zip((64, 128, 256, 512), BLOCKS[a.encoder])):
            layers += [Block(c, w, 2 if i else 1)] + [Block(w, w, 1) for _ in range(blocks - 1)]
            c = w
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head(512))

    cuda = dict(device="cuda", memory_format=torch.channels_last)
    online, target = encoder().to(**cuda), encoder().to(**cuda)
    target.load_state_dict(online.state_dict())
    predictor = head(256).cuda()
    for p in target.parameters(): p.requires_grad_(False)
    params = list(online.parameters()) + list(predictor.parameters())
    opt = torch.optim.SGD(params, lr=0.01, momentum=0.9, weight_decay=5e-4, fused=True)
    x = torch.rand(2 * batch, 3, a.size, a.size, device="cuda").to(memory_format=torch.channels_last)
    mine, theirs = list(online.parameters()), list(target.parameters())

    def loss_of(x):
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            q = F.normalize(predictor(online(x)).float(), dim=1)
            with torch.no_grad():
                k = F.normalize(target(x).float(), dim=1)
            return -(q * torch.cat((k[batch:], k[:batch]))).sum() / batch

    forward = torch.compile(loss_of, mode=a.tune) if mode == "compile" else loss_of

    def step():
        opt.zero_grad(set_to_none=True)
        forward(x).backward()
        torch._foreach_lerp_(theirs, mine, 0.004)
        opt.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5): step()
    torch.cuda.current_stream().wait_stream(side)
    if mode == "eager": return step
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph): step()
    graph.owns = step, x  # a graph does not keep weights and images alive
    return graph.replay

def torch_ms(step, seconds):
    import torch
    for _ in range(5): step()
    best, begin = 1e9, time.time()
    while time.time() - begin < seconds:
        torch.cuda.synchronize()
        t = time.perf_counter()
        for _ in range(10): step()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - t) / 10)
    return 1e3 * best

def conr_ms(a):
    command = [a.conr, "bench", "train", "--device", "cuda", "--byol", "--batch", str(a.batch), "--seconds", str(a.seconds), "--json",
               "--encoder", a.encoder, "--stem", a.stem, "--size", str(a.size)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode: sys.exit(done.stderr.strip())
    return 1e3 * json.loads(done.stdout)["seconds"]

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--conr", default="build-cuda/conr")
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--encoder", default="resnet18", choices=BLOCKS)
    p.add_argument("--stem", default="cifar", choices=("cifar", "imagenet"))
    p.add_argument("--size", type=int, default=32)
    p.add_argument("--tune", default="max-autotune-no-cudagraphs", help="mode of torch.compile; 'default' compiles faster")
    p.add_argument("--modes", nargs="+", default=["eager", "graph", "compile"])
    p.add_argument("--seconds", type=float, default=3)
    p.add_argument("--rounds", type=int, default=2)
    a = p.parse_args()
    import torch
    steps = {}
    for mode in a.modes:
        steps[mode] = torch_step(a, mode)
        print(f"  torch {torch.__version__} {mode:8} {torch_ms(steps[mode], 1):7.2f} ms", flush=True)
    peer = min(steps, key=lambda m: torch_ms(steps[m], 1))
    ours, theirs = [], []
    for _ in range(a.rounds):
        ours.append(conr_ms(a))
        theirs.append(torch_ms(steps[peer], a.seconds))
        print(f"  round: conr {ours[-1]:.2f} ms, torch ({peer}) {theirs[-1]:.2f} ms", flush=True)
    o, t = min(ours), min(theirs)
    print(f"{torch.cuda.get_device_name()}, {a.encoder} at {a.size} pixels, batch {a.batch}: conr {o:.2f} ms ({1e3 / o:.0f} it/s), torch {peer} {t:.2f} ms ({1e3 / t:.0f} it/s); conr is {t / o:.2f} times as fast")

if __name__ == "__main__":
    main()
