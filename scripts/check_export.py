#!/usr/bin/env python3
"""Checks that exported encoders give the features of `conr embed` in ONNX Runtime and torchvision.

    check_export.py build/conr      uses onnxruntime and torchvision, as far as they can be imported

Does six short trainings on synthetic images (every encoder, both stems, gray and color).  The error
is the largest difference of any feature of a unit row; exits with 1 above 2e-5, since both sides add
in fp32 in their own order.
"""
import json, subprocess, sys, tempfile
from pathlib import Path
import numpy as np

BOUND = 2e-5
MODELS = [("small", "small", 28, 1, "byol"), ("resnet18", "cifar", 32, 3, "byol"),
          ("resnet18", "imagenet", 64, 3, "simsiam"), ("resnet34", "cifar", 32, 3, "moco"),
          ("resnet50", "imagenet", 64, 3, "byol"), ("resnet101", "cifar", 16, 3, "byol")]


def pictures(n, size, channels):
    """Soft blobs of varying position and color, so that features differ."""
    r = np.random.default_rng(1)
    y, x = np.mgrid[:size, :size] / size
    at, color = r.random((n, 2)), r.random((n, channels))
    near = np.exp(-8 * ((x - at[:, :1, None]) ** 2 + (y - at[:, 1:, None]) ** 2))
    out = near[..., None] * color[:, None, None] * 200 + r.random((n, size, size, channels)) * 55
    out = out.astype(np.uint8)
    return out[..., 0] if channels == 1 else out


def read_safetensors(path):
    raw = Path(path).read_bytes()
    n = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8:8 + n])
    types = {"F32": np.float32, "I64": np.int64}
    notes = head.pop("__metadata__")
    at = lambda t: np.frombuffer(raw[8 + n:][slice(*t["data_offsets"])], types[t["dtype"]]).reshape(t["shape"])
    return {name: at(t) for name, t in head.items()}, notes


def by_onnx(path, x):
    import onnxruntime
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    many = session.run(["features", "encoder"], {"images": x})
    one = session.run(["features"], {"images": x[:1]})[0]  # any number of images
    assert np.abs(one - many[0][:1]).max() < BOUND
    return many[0]


def by_torchvision(path, x):
    import torch, torchvision
    weights, notes = read_safetensors(path)
    weights = {k: torch.from_numpy(v.copy()) for k, v in weights.items()}
    if notes["encoder"] == "small":
        return None
    net = getattr(torchvision.models, notes["encoder"])()
    channels = int(notes["channels"])
    if notes["stem"] == "cifar":
        net.conv1 = torch.nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
        net.maxpool = torch.nn.Identity()
    head = {k: v for k, v in weights.items() if k.startswith("projector.")}
    missing, unexpected = net.load_state_dict({k: v for k, v in weights.items() if k not in head}, strict=False)
    assert set(missing) == {"fc.weight", "fc.bias"} and not unexpected, (missing, unexpected)
    net.fc = torch.nn.Identity()
    mean, deviation = (np.array(notes[k].split()[:channels], np.float32)[:, None, None] for k in ("mean", "deviation"))
    with torch.no_grad():
        f = net.eval()(torch.from_numpy((x - mean) / deviation))
        places = sorted({int(k.split(".")[1]) for k in head})
        for place in range(places[-1] + 1):
            w = {k.split(".")[2]: v for k, v in head.items() if int(k.split(".")[1]) == place}
            if "running_mean" in w:
                f = torch.nn.functional.batch_norm(f, w["running_mean"], w["running_var"], w.get("weight"), w.get("bias"))
            elif "weight" in w:
                f = torch.nn.functional.linear(f, w["weight"], w.get("bias"))
            else:
                f = f.relu()  # numbered as in nn.Sequential, where a ReLU has no weights
        return torch.nn.functional.normalize(f).numpy()


def can(name):
    try:
        __import__(name)
        return True
    except ImportError:
        return False


def main():
    conr, failed = sys.argv[1], False
    peers = [(w, f, end) for w, f, end in (("onnxruntime", by_onnx, "onnx"), ("torchvision", by_torchvision, "safetensors")) if can(w)]
    if not peers:
        print("skipped: neither onnxruntime nor torchvision can be imported")
    with tempfile.TemporaryDirectory() as folder:
        call = lambda *words: subprocess.run([conr, *map(str, words), "--quiet"], check=True, stdout=subprocess.DEVNULL)
        for encoder, stem, size, channels, framework in MODELS if peers else []:
            run = f"{folder}/{encoder}-{stem}"
            images = pictures(48, size, channels)
            np.save(f"{folder}/images.npy", images)
            sets = dict(encoder=encoder, size=size, framework=framework, epochs=1, stage1_epochs=1, hidden=64, features=32, batch=16)
            if encoder != "small":
                sets["stem"] = stem
            call("cluster", f"{folder}/images.npy", "--clusters", 3, "--out", run, *[f"--set={k}={v}" for k, v in sets.items()])
            call("embed", run, f"{folder}/images.npy", "--out", f"{folder}/f.npy")
            ours = np.load(f"{folder}/f.npy")
            x = images.reshape(len(images), size, size, channels).transpose(0, 3, 1, 2).astype(np.float32) / 255
            for peer, forward, end in peers:
                call("export", run, "--out", f"{run}.{end}", "--projector")
                theirs = forward(f"{run}.{end}", x)
                if theirs is None:
                    continue
                error = np.abs(theirs - ours).max()
                failed |= not error <= BOUND
                print(f"{peer:12} {encoder:9} {stem:9} {framework:8} {size}x{size}x{channels}: largest difference {error:.1e}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
