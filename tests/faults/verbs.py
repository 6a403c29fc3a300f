"""verbs.py: the inputs of the fault driver, its verbs, and what a verb leaves when all is right.

Everything is tiny, so that a case takes a few hundredths of a second."""
import json
import os
import random
import shutil
import struct
import zlib

# No report: it is most of the time and has cases of its own.
RECIPE = """encoder: small
width: 4
size: 16
hidden: 8
predictor_hidden: 8
features: 8
clusters: 3
batch: 16
lr: 0.1
predictor_lr: 1
epochs: 3
stage1_epochs: 2
warmup_epochs: 1
relax_epochs: 2
restarts: 1
checkpoint_every: 1
log_every: 1
"""
# The results that must be the same bits, however often the run was stopped.
RESULTS = ["model.safetensors", "head.safetensors", "embeddings.npy", "centroids.npy", "labels.csv", "data.json", "options.yaml"]


def png(path, rng, bright):
    """A gray image of 16 x 16 pixels."""
    rows = b"".join(b"\0" + bytes(min(255, bright + rng.randrange(96) + 4 * x) for x in range(16)) for _ in range(16))

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", 16, 16, 8, 0, 0, 0, 0)
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def npy(path, kind, shape, numbers):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        f.write(struct.pack(f"<{len(numbers)}{'f' if 'f' in kind else 'q'}", *numbers))


def make_inputs(at):
    """Images in two classes, a few new ones, features, labels, a recipe."""
    rng = random.Random(7)
    for folder, n in (("data/dark", 12), ("data/light", 12), ("new", 3)):
        os.makedirs(f"{at}/{folder}")
        for i in range(n):
            png(f"{at}/{folder}/i{i:02}.png", rng, {"data/light": 90}.get(folder, 0))
    centers = [[rng.gauss(0, 3) for _ in range(4)] for _ in range(3)]
    npy(f"{at}/f.npy", "<f4", (30, 4), [rng.gauss(c, 1) for i in range(30) for c in centers[i % 3]])
    npy(f"{at}/t.npy", "<i8", (30,), [i % 3 for i in range(30)])
    npy(f"{at}/l.npy", "<i8", (30,), [(i + i // 20) % 3 for i in range(30)])
    os.makedirs(f"{at}/idx")
    with open(f"{at}/idx/train-images-idx3-ubyte", "wb") as f:
        f.write(struct.pack(">IIII", 0x803, 8, 4, 4) + bytes(rng.randrange(256) for _ in range(8 * 16)))
    with open(f"{at}/idx/train-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">II", 0x801, 8) + bytes(i % 2 for i in range(8)))
    os.makedirs(f"{at}/cifar")
    for name, n in (("data_batch_1.bin", 6), ("test_batch.bin", 3)):
        with open(f"{at}/cifar/{name}", "wb") as f:
            for i in range(n):
                f.write(bytes([i % 2]) + bytes(rng.randrange(128) + 127 * (i % 2) for _ in range(3072)))
    shutil.copy(f"{os.path.dirname(os.path.abspath(__file__))}/../../fuzz/corpus/encoder/timm", f"{at}/vit")
    with open(f"{at}/tiny.yaml", "w") as f:
        f.write(RECIPE)


SMALL = [w for line in RECIPE.split("\n")[1:] if line and "clusters" not in line
         for w in ("--set", line.replace(": ", "="))]

# The words of every verb; {i}: the inputs, which must stay as they are; {o}: a folder of the case.
# `half` in {o} is an interrupted run, `run` in {i} a finished one.  The others write over an old
# file {o}/out.
VERBS = {
    "train": "train --recipe {i}/tiny.yaml --data {i}/data --out {o}/run --no-report",
    "resume": "train --resume --data {i}/data --out {o}/half --no-report",
    "cluster": "cluster {i}/data --clusters auto:2-4 --out {o}/run --sort-into {o}/sorted " + " ".join(SMALL),
    "features": "cluster --features {i}/f.npy --clusters 3 --refine none --method kmeans --out {o}/run",
    "refined": "cluster --features {i}/f.npy --clusters 3 --refine conaff --method graph --out {o}/run --no-report",
    "described": "cluster {i}/data --features hog --clusters 2 --out {o}/run --no-report",
    "pretrained": "cluster {i}/data --encoder {i}/vit --clusters 2 --refine none --method kmeans --out {o}/run --no-report",
    "recluster": "cluster {i}/run --clusters 2 --out {o}/run --no-report",
    "sweep": "sweep --recipe {i}/tiny.yaml --data {i}/data --grid fr0=0.8,1 --set epochs=2 --set stage1_epochs=1"
             " --out {o}/sweep",
    "embed": "embed {i}/run {i}/new --out {o}/out",
    "assign": "assign {i}/run {i}/new --out {o}/out --sort-into {o}/sorted --copy",
    "embed-rows": "embed {i}/head {i}/f.npy --out {o}/out",
    "assign-rows": "assign {i}/head {i}/f.npy --out {o}/out",
    "embed-encoder": "embed {i}/new --encoder {i}/vit --out {o}/out",
    "sort": "cluster {i}/run --sort-into {o}/sorted --copy",
    "neighbors": "neighbors {i}/f.npy --out {o}/out --k 5 --k1 5",
    "kmeans": "kmeans {i}/f.npy --clusters auto:2-4 --out {o}/out --restarts 2",
    "kmeans-images": "kmeans {i}/data --clusters 2 --out {o}/out --restarts 1",
    "duplicates": "duplicates {i}/data --out {o}/out",
    "eval": "eval --truth {i}/t.npy --pred {i}/l.npy",
    "eval-csv": "eval --truth {i}/run/labels.csv --truth-column label --pred {i}/run/labels.csv",
    "report": "report {i}/run --out {o}/out",
    "compare": "report {i}/run {i}/again --out {o}/out",
    "export": "export {i}/run --out {o}/out --format onnx",
    "export-tensors": "export {i}/run --out {o}/out --format safetensors --projector",
    "info": "info {i}/run",
    "info-data": "info {i}/data",
    "info-encoder": "info {i}/vit",
    "info-idx": "info {i}/idx",
    "kmeans-idx": "kmeans {i}/idx --clusters 2 --out {o}/out --restarts 1",
    "kmeans-cifar": "kmeans {i}/cifar --clusters 2 --out {o}/out --restarts 1",
}
AT_ONCE = ["features", "refined", "described", "pretrained", "recluster"]  # runs that are not resumed
TRAINS = {"train": "run", "resume": "half", "cluster": "run", "sweep": "sweep",  # the folder of a verb's runs
          **{verb: "run" for verb in AT_ONCE}}
COMMON = ["--threads", "1", "--quiet", "--json"]


def words(verb, inputs, out):
    return VERBS[verb].format(i=inputs, o=out).split() + COMMON


def lay_out(verb, inputs, out):
    """The folder of a case before its verb runs."""
    os.makedirs(out)
    if verb == "resume":
        shutil.copytree(f"{inputs}/half", f"{out}/half")
    elif verb not in TRAINS:
        with open(f"{out}/out", "w") as f:
            f.write("the old file\n")


def again(verb, inputs, out):
    """The words that continue what a failed, stopped or killed verb left."""
    folder = f"{out}/{TRAINS[verb]}"
    if verb in AT_ONCE and os.path.exists(f"{folder}/DONE"):  # else it is started over
        return f"info {folder}".split() + COMMON
    if verb not in ["sweep"] + AT_ONCE and os.path.exists(f"{folder}/options.yaml"):
        return f"train --resume --data {inputs}/data --out {folder}".split() + COMMON
    return words(verb, inputs, out)


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return None


def log_of(path):
    """A run's log without its times: None if there is none, a text if a line is no JSON."""
    lines = []
    for line in (read(path) or b"").splitlines():
        try:
            o = json.loads(line)
        except ValueError:
            return f"not JSON: {line[:80]}"
        lines.append({k: v for k, v in o.items() if k not in ("seconds", "images_per_s")})
    return lines or None


def run_state(folder):
    """What must be equal in two finished runs, by name."""
    state = {name: read(f"{folder}/{name}") for name in RESULTS}
    state["log.jsonl"] = log_of(f"{folder}/log.jsonl")
    state["DONE"] = os.path.exists(f"{folder}/DONE")
    return state


def tree(folder):
    """Every file below a folder with its bytes; links with their target."""
    found = {}
    for at, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(at, name)
            found[os.path.relpath(path, folder)] = os.readlink(path) if os.path.islink(path) else read(path)
    return found


def state_of(verb, out):
    """What a verb has made: compared with that of a run without faults."""
    if verb not in TRAINS:
        return tree(out)
    state = {}
    runs = [TRAINS[verb]]
    if verb == "sweep":
        runs = sorted(d for d in os.listdir(f"{out}/sweep") if "=" in d) if os.path.isdir(f"{out}/sweep") else []
        runs = [f"sweep/{d}" for d in runs]
        state["table.md"] = read(f"{out}/sweep/table.md")
    for r in runs:
        state.update({f"{r}/{k}": v for k, v in run_state(f"{out}/{r}").items()})
    return state


def said(stdout, out):
    """Standard output without times and without the case's folder: one JSON object; a text if it
    is not that."""
    try:
        o = json.loads(stdout.replace(out, "OUT"))
    except ValueError:
        return f"not one JSON object: {stdout[-80:]!r}"

    def strip(x):
        if isinstance(x, dict):
            return {k: strip(v) for k, v in x.items() if "second" not in k}
        return [strip(v) for v in x] if isinstance(x, list) else x
    return strip(o)
