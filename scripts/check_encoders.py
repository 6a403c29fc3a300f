#!/usr/bin/env python3
"""Checks that pretrained networks exported as ONNX give the features of `conr embed`.

    check_encoders.py build/conr            all of them, 10 s
    check_encoders.py build/conr --few      those that differ most, by NumPy only, 2 s

Every network of golden/vit.json, with weights drawn at random, at each size that it has values for,
and ResNets of width 8 under torchvision's names.  The file is run by NumPy (`run`), which knows the
operations that we write, and by ONNX Runtime, if that can be imported.  The error is the largest
difference of any feature of a unit row; exits with 1 above 1e-4, and with 77 without NumPy."""
import json, math, struct, subprocess, sys, tempfile
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print("skipped: no NumPy")
    sys.exit(77)

BOUND = 1e-4


# ---- protobuf, as read
def fields(raw):
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    at = 0
    while at < len(raw):
        key = varint()
        if key & 7 == 0:
            v = varint()
            yield key >> 3, v - (1 << 64) if v >> 63 else v
        else:
            n = 4 if key & 7 == 5 else varint()
            yield key >> 3, raw[at:at + n]
            at += n


def all_of(raw):
    out = {}
    for number, v in fields(raw):
        out.setdefault(number, []).append(v)
    return out


def text(v):
    return bytes(v).decode()


def tensor(raw):
    t = all_of(raw)
    kind = {1: np.float32, 7: np.int64}[t[2][0]]
    return text(t[8][0]), np.frombuffer(t[9][0], kind).reshape(t.get(1, []))


def attribute(raw):
    a = all_of(raw)
    value = {1: lambda: struct.unpack("<f", a[2][0])[0], 2: lambda: a[3][0], 7: lambda: a[8]}
    return text(a[1][0]), value[a[20][0]]()


# ---- the graph, as run
def windows(x, a, fill):
    k, s, p = a["kernel_shape"][0], a["strides"][0], a["pads"][0]
    x = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(x, (k, k), (2, 3))[:, :, ::s, ::s]


def conv(a, x, w, b=None):
    y = np.einsum("nchwij,ocij->nohw", windows(x, a, 0), w, optimize=True)
    return y if b is None else y + b[:, None, None]


def batch_norm(a, x, gamma, beta, mean, var):
    gamma = gamma / np.sqrt(var + a["epsilon"])
    return x * gamma[:, None, None] + (beta - mean * gamma)[:, None, None]


def layer_norm(a, x, gamma, beta):
    assert a["axis"] == -1
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + a["epsilon"]) * gamma + beta


def softmax(a, x):
    e = np.exp(x - x.max(a["axis"], keepdims=True))
    return e / e.sum(a["axis"], keepdims=True)


def gemm(a, x, w, b=0):
    assert a == {"transB": 1}
    return x @ w.T + b


def pad(a, x, pads):
    n = x.ndim
    return np.pad(x, [(pads[i], pads[n + i]) for i in range(n)])


def part(a, x, start, end, axes):
    at = [slice(None)] * x.ndim
    for i, low, high in zip(axes, start, end):
        at[i] = slice(low, high)
    return x[tuple(at)]


OPS = {
    "Sub": lambda a, x, y: x - y, "Div": lambda a, x, y: x / y, "Add": lambda a, x, y: x + y,
    "Mul": lambda a, x, y: x * y, "Max": lambda a, x, y: np.maximum(x, y),
    "MatMul": lambda a, x, y: x @ y, "Identity": lambda a, x: x, "Relu": lambda a, x: np.maximum(x, 0),
    "Tanh": lambda a, x: np.tanh(x), "Sigmoid": lambda a, x: 1 / (1 + np.exp(-x)),
    "Erf": lambda a, x: np.vectorize(math.erf)(x), "Softmax": softmax, "Gemm": gemm, "Conv": conv,
    "BatchNormalization": batch_norm, "LayerNormalization": layer_norm, "Pad": pad, "Slice": part,
    "Reshape": lambda a, x, shape: x.reshape(shape),
    "Transpose": lambda a, x: x.transpose(a["perm"]),
    "Gather": lambda a, x, i: np.take(x, i, a["axis"]),
    "MaxPool": lambda a, x: windows(x, a, -np.inf).max((-1, -2)),
    "GlobalAveragePool": lambda a, x: x.mean((2, 3), keepdims=True),
    "Flatten": lambda a, x: x.reshape(len(x), -1),
    "ReduceMean": lambda a, x: x.mean(tuple(a["axes"]), keepdims=bool(a["keepdims"])),
    "ReduceL2": lambda a, x: np.sqrt((x * x).sum(tuple(a["axes"]), keepdims=bool(a["keepdims"]))),
}


def run(path, x):
    """The values of all nodes, in double; every constant must be used."""
    graph = all_of(all_of(memoryview(Path(path).read_bytes()))[7][0])
    value = {"images": x.astype(np.float64)}
    for raw in graph[5]:
        name, t = tensor(raw)
        assert name not in value, name
        value[name] = t if t.dtype == np.int64 else t.astype(np.float64)
    unused = set(value) - {"images"}
    for raw in graph[1]:
        n = all_of(raw)
        out, inputs = text(n[2][0]), list(map(text, n[1]))
        assert out not in value, out
        value[out] = OPS[text(n[4][0])](dict(map(attribute, n.get(5, []))), *[value[i] for i in inputs])
        unused -= set(inputs)
    assert not unused, unused
    return value


def by_numpy(path, x):
    value = run(path, x)
    length = np.linalg.norm(value["encoder"], axis=1, keepdims=True)
    assert np.abs(value["encoder"] / length - value["features"]).max() < 1e-6
    return value["features"]


def by_onnxruntime(path, x):
    import onnxruntime
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    many, before = session.run(["features", "encoder"], {"images": x})
    one = session.run(["features"], {"images": x[:1]})[0]  # any number of images
    assert np.abs(one - many[:1]).max() < BOUND and before.shape == many.shape
    return many


# ---- files
def write(path, tensors, kind, rng):
    head, data = {}, []
    at = 0
    for name, shape, scale, mean in tensors:
        v = (mean + scale * rng.uniform(-1, 1, math.prod(shape))).astype("<f4")
        raw = (v.astype("<f2") if kind == "F16" else v.view("<u4") >> 16 if kind == "BF16" else v)
        raw = (raw.astype("<u2") if kind == "BF16" else raw).tobytes()
        head[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        data.append(raw)
    h = json.dumps(head).encode()
    Path(path).write_bytes(struct.pack("<Q", len(h)) + h + b"".join(data))


def resnet(blocks, bottleneck, side):
    def norm(name, c):
        return [[f"{name}.weight", [c], 0.2, 1], [f"{name}.bias", [c], 0.05, 0],
                [f"{name}.running_mean", [c], 0.05, 0], [f"{name}.running_var", [c], 0.2, 1]]
    out, wide = [["conv1.weight", [8, 3, side, side], 0.3, 0]] + norm("bn1", 8), 8
    for s, n in enumerate(blocks):
        for b in range(n):
            mid, last = 8 << s, (32 if bottleneck else 8) << s
            layers = ([(mid, wide, 1), (mid, mid, 3), (last, mid, 1)] if bottleneck else
                      [(mid, wide, 3), (last, mid, 3)])
            for i, (co, ci, k) in enumerate(layers, 1):
                out += [[f"layer{s + 1}.{b}.conv{i}.weight", [co, ci, k, k], math.sqrt(2 / (ci * k * k)), 0]]
                out += norm(f"layer{s + 1}.{b}.bn{i}", co)
            if wide != last or (b == 0 and s):
                out += [[f"layer{s + 1}.{b}.downsample.0.weight", [last, wide, 1, 1], math.sqrt(6 / wide), 0]]
                out += norm(f"layer{s + 1}.{b}.downsample.1", last)
            wide = last
    return out


def cases(golden):
    for m in json.loads((Path(golden) / "vit.json").read_text())["models"]:
        sizes = list(map(int, m["features"]))
        yield m["title"], m["tensors"], m["type"], sizes[0], []
        for size in sizes[1:]:  # interpolated positions
            yield f"{m['title']} at {size}", m["tensors"], m["type"], size, [f"size={size}"]
        if m["title"] == "timm, a classifier":
            yield "timm, pool=mean", m["tensors"], m["type"], sizes[0], ["pool=mean"]
            yield "timm, gelu=tanh", m["tensors"], m["type"], sizes[0], ["gelu=tanh"]
    for title, blocks, bottleneck, side, size in [
            ("ResNet-18", (2, 2, 2, 2), False, 7, 48), ("ResNet-34", (3, 4, 6, 3), False, 3, 16),
            ("ResNet-50", (3, 4, 6, 3), True, 7, 48), ("ResNet-101", (3, 4, 23, 3), True, 7, 40)]:
        yield title, resnet(blocks, bottleneck, side), "F32", size, [f"size={size}"]


FEW = {"timm, a classifier at 80", "timm, mean", "timm, DINOv2 with registers at 42", "open_clip",
       "Hugging Face, CLIP", "Hugging Face, SigLIP", "ResNet-18", "ResNet-50"}


def main():
    conr, few = sys.argv[1], "--few" in sys.argv
    golden = Path(__file__).parent.parent / "golden"
    peers, failed, rng, checked = [("NumPy", by_numpy)], False, np.random.default_rng(1), 0
    try:
        if few:
            raise ImportError
        import onnxruntime
        peers.append((f"ONNX Runtime {onnxruntime.__version__}", by_onnxruntime))
    except ImportError:
        print("by NumPy only")
    with tempfile.TemporaryDirectory() as folder:
        call = lambda *words: subprocess.run([conr, *map(str, words), "--quiet"], check=True, stdout=subprocess.DEVNULL)
        for title, tensors, kind, size, settings in cases(golden):
            if few and title not in FEW:
                continue
            checked += 1
            color, y, w = rng.integers(0, 160, (3, 1, 1, 3)), *np.mgrid[:size, :size]
            bars = np.stack([y // 2 % 2, w // 4 % 2, (y + w) // 8 % 2])[..., None] * 64  # three unlike images
            images = (color + bars + rng.integers(0, 32, (3, size, size, 3))).astype(np.uint8)
            np.save(f"{folder}/images.npy", images)
            write(f"{folder}/w.safetensors", tensors, kind, rng)
            # no resizing: images have the size already
            sets = [w for s in [*settings, "resize=0"] for w in ("--encoder-set", s)]
            call("embed", f"{folder}/images.npy", "--encoder", f"{folder}/w.safetensors", *sets, "--out", f"{folder}/f.npy")
            call("export", f"{folder}/w.safetensors", *sets, "--out", f"{folder}/w.onnx")
            ours = np.load(f"{folder}/f.npy")
            x = images.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
            assert np.abs(ours[0] - ours[1]).max() > 50 * BOUND, f"{title}: all images look alike"
            for peer, forward in peers:
                error = np.abs(forward(f"{folder}/w.onnx", x) - ours).max()
                failed |= not error <= BOUND
                print(f"{peer}: {title}: largest difference {error:.1e}{'' if error <= BOUND else ' FAILED'}")
    assert checked == len(FEW) or not few
    return failed


if __name__ == "__main__":
    sys.exit(main())
