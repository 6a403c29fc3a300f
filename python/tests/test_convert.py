"""Checkpoints of others: read without running them, their encoders under torchvision's names."""
import json
import os
import pickle
import zipfile

import numpy as np
import pytest

import conr
from conr import convert


def resnet(blocks, bottleneck, width):
    """Weights of a narrow ResNet under torchvision's names."""
    rng = np.random.default_rng(4)
    out, c = {}, width

    def conv(name, co, ci, k):
        out[name + ".weight"] = rng.standard_normal((co, ci, k, k)).astype(np.float32)

    def norm(name, n):
        for part in ("weight", "bias", "running_mean", "running_var"):
            out[f"{name}.{part}"] = rng.random(n).astype(np.float32)
        out[name + ".num_batches_tracked"] = np.array(7)

    conv("conv1", width, 3, 3)
    norm("bn1", width)
    for layer in range(1, 5):
        w = width << (layer - 1)
        convs = [(w, 1), (w, 3), (4 * w, 1)] if bottleneck else [(w, 3), (w, 3)]
        for block in range(blocks[layer - 1]):
            at, ci = f"layer{layer}.{block}", c
            for i, (co, k) in enumerate(convs):
                conv(f"{at}.conv{i + 1}", co, ci, k)
                norm(f"{at}.bn{i + 1}", co)
                ci = co
            if c != ci:
                conv(at + ".downsample.0", ci, c, 1)
                norm(at + ".downsample.1", ci)
            c = ci
    return out


def resnet18(width=8):
    return resnet((2, 2, 2, 2), False, width)


def sequential(weights, pool):
    """The same as children of a Sequential, with a pool between or not."""
    place = {"conv1": "0", "bn1": "1", **{f"layer{i}": str(i + 2 + pool) for i in range(1, 5)}}
    return {".".join([place[name.split(".")[0]], *name.split(".")[1:]]): a
            for name, a in weights.items()}


def under(prefix, weights, scale=1):
    return {prefix + name: a * scale if a.dtype == np.float32 else a for name, a in weights.items()}


@pytest.mark.parametrize("kind", ["authors", "propos", "solo", "plain"])
def test_encoders_are_found_in_names(kind):
    ours = resnet18()
    tensors = {
        "authors": {**under("module.encoder_q.", sequential(ours, 0), 2),
                    **under("module.encoder_k.", sequential(ours, 0)),
                    "module.projector_k.0.weight": np.zeros((4, 64), np.float32),
                    "module.projector_k.1.running_mean": np.zeros(4, np.float32)},
        "propos": {**under("encoder_q.", sequential(ours, 1), 2),
                   **under("encoder_k.", sequential(ours, 1)),
                   **under("encoder.0.", sequential(ours, 1))},
        "solo": {**under("state_dict.backbone.", ours, 2),
                 **under("state_dict.momentum_backbone.", ours)},
        "plain": {**ours, "fc.weight": np.zeros((10, 64), np.float32)},
    }[kind]
    found = convert.find_encoders(tensors)
    got = convert.encoder(tensors, found[0])
    assert set(got) == set(ours) and all((got[k] == ours[k]).all() for k in ours)
    assert convert.describe(got) == "resnet18, stem cifar, width 8, 3 channels"


def test_init_takes_what_was_converted(images, tmp_path):
    weights = resnet18()
    conr.write_safetensors(tmp_path / "x.safetensors", under("backbone.", weights))
    target = tmp_path / "out.safetensors"
    assert convert.main([str(tmp_path / "x.safetensors"), str(target)]) == 0
    colors = np.repeat(images[:32, ::2, ::2, None], 3, axis=3)
    colors[..., 0] //= 2
    still = dict(epochs=1, stage1_epochs=1, lr=0, decay=0, warmup_epochs=0, batch=16, restarts=1,
                 size=16, width=8, hidden=16, predictor_hidden=16, features=8,
                 threads=1)
    model = conr.DeepCluster(2, recipe="cifar10", init=target, progress=False, **still).fit(colors)
    back = model.model_.state_dict("encoder", torch=False)
    assert (back["layer4.1.conv2.weight"] == weights["layer4.1.conv2.weight"]).all()


def hugging(weights):
    """The same under Hugging Face's names, as its classifiers have them."""
    out = {"classifier.1.weight": np.zeros((10, 64), np.float32)}
    for name, a in weights.items():
        part = name.split(".")
        kind = "convolution" if "conv" in name or "downsample.0" in name else "normalization"
        place = "embedder.embedder"
        if len(part) > 2:
            place = f"encoder.stages.{int(part[0][-1]) - 1}.layers.{part[1]}."
            place += "shortcut" if part[2] == "downsample" else f"layer.{int(part[2][-1]) - 1}"
        out[f"resnet.{place}.{kind}.{part[-1]}"] = a
    return out


@pytest.mark.parametrize("kind, blocks, bottleneck", [
    ("resnet34", (3, 4, 6, 3), False), ("resnet50", (3, 4, 6, 3), True),
    ("resnet101", (3, 4, 23, 3), True), ("small", (1, 1, 1, 0), False)])
def test_bottlenecks_and_hugging_face(kind, blocks, bottleneck):
    ours = resnet(blocks, bottleneck, 2)
    for tensors in (ours, under("backbone.", ours), hugging(ours)):
        got = convert.encoder(tensors, convert.find_encoders(tensors)[0])
        assert set(got) == set(ours) and all((got[k] == ours[k]).all() for k in ours)
        assert convert.describe(got) == (
            f"{kind}, stem {'small' if kind == 'small' else 'cifar'}, width 2, 3 channels")


def test_file_of_hugging_face_trains_on(tmp_path, capsys):
    source = os.path.join(os.path.dirname(__file__), "../../golden/resnets/hf50.safetensors")
    target = tmp_path / "hf50.safetensors"
    assert convert.main([source, str(target)]) == 0
    assert "resnet50, stem imagenet, width 2, 3 channels" in capsys.readouterr().out
    rng = np.random.default_rng(1)
    still = dict(epochs=1, stage1_epochs=1, lr=0, decay=0, warmup_epochs=0, batch=8, restarts=1,
                 size=33, encoder="resnet50", stem="imagenet", width=2, hidden=8,
                 predictor_hidden=8, features=4, threads=1, baseline=False)
    model = conr.DeepCluster(2, recipe="cifar10", init=target, progress=False,
                             **still).fit(rng.integers(0, 256, (8, 33, 33, 3), dtype=np.uint8))
    back = model.model_.state_dict("encoder", torch=False)
    theirs = conr.read_safetensors(source)[0]
    name = "encoder.stages.2.layers.5.layer.1.convolution.weight"
    assert (back["layer3.5.conv2.weight"] == theirs[name]).all()
    with pytest.raises(conr.Error, match="holds a resnet50"):
        conr.DeepCluster(2, recipe="cifar10", init=target, progress=False,
                         **{**still, "encoder": "resnet18"}).fit(np.zeros((8, 33, 33, 3), "u1"))


def test_what_is_not_known_is_named(tmp_path, capsys):
    se = resnet((3, 4, 6, 3), True, 2)
    extra = {f"layer1.{i}.se.fc1.weight": np.zeros((1, 1, 1, 1), np.float32) for i in range(3)}
    conr.write_safetensors(tmp_path / "se.safetensors", {**se, **extra})
    conr.write_safetensors(tmp_path / "152.safetensors", resnet((3, 8, 36, 3), True, 1))
    out = str(tmp_path / "out.safetensors")
    assert convert.main([str(tmp_path / "se.safetensors"), out]) == 1
    said = capsys.readouterr().err
    assert all(name in said for name in extra) and len(said.splitlines()) == 1
    assert convert.main([str(tmp_path / "152.safetensors"), out]) == 1
    said = capsys.readouterr().err
    assert "a ResNet of 50 bottleneck blocks" in said and len(said.splitlines()) == 1
    assert not os.path.exists(out)


def vits():
    """Small vision transformers as their libraries have them, with random weights."""
    golden = os.path.join(os.path.dirname(__file__), "../../golden/vit.json")
    with open(golden) as f:
        models = json.load(f)["models"]
    rng = np.random.default_rng(3)
    return {m["title"]: {name: rng.uniform(-0.1, 0.1, shape).astype(np.float32)
                         for name, shape, _, _ in m["tensors"]} for m in models}


@pytest.mark.parametrize("title, wrapper", [
    ("DINO", "teacher.backbone."), ("timm, a classifier", "model."), ("timm, DeiT", "model."),
    ("timm, DINOv2 with registers", "state_dict.module."), ("DINOv2", ""), ("timm, SigLIP", ""),
    ("Hugging Face, DINOv2", "backbone."), ("Hugging Face, ViT", "module."),
    ("Hugging Face, CLIP", "state_dict."), ("Hugging Face, SigLIP", ""),
    ("open_clip", "state_dict.module.")])
def test_vision_transformers_lose_their_wrapper(title, wrapper, tmp_path, capsys):
    ours = vits()[title]
    more = {"student.backbone." + k: v for k, v in ours.items()} if "teacher" in wrapper else {}
    more["optimizer.0"] = np.zeros(3, np.float32)
    more["teacher.head.mlp.0.weight"] = np.zeros((3, 3), np.float32)
    source, target = tmp_path / "x.safetensors", tmp_path / "out.safetensors"
    wrapped = {**more, **under(wrapper, ours)} if wrapper else ours
    conr.write_safetensors(source, wrapped)
    assert convert.main([str(source), str(target)]) == 0, capsys.readouterr().err
    assert "a vision transformer, patches of 1" in capsys.readouterr().out
    got = conr.read_safetensors(target)[0]
    prefix = [k for k in ours if "patch" in k or "conv1" in k][0].split(".")[0] + "."
    prefix = prefix if prefix in ("visual.", "vision_model.", "vit.") else ""
    inside = {k for k in ours if k.startswith(prefix) or k == "visual_projection.weight"}
    assert set(got) == inside and all((got[k] == ours[k]).all() for k in inside)
    assert convert.main([str(source), "--list"]) == 0
    assert "width 128, 2 blocks" in capsys.readouterr().out


def test_what_a_vision_transformer_does_not_have_is_named(tmp_path, capsys):
    ours = vits()["DINO"]
    source, out = tmp_path / "x.safetensors", str(tmp_path / "out.safetensors")
    conr.write_safetensors(source, under("module.", {**ours, "blocks.1.rope": np.ones(4, "f4")}))
    assert convert.main([str(source), out]) == 1
    said = capsys.readouterr().err
    assert "'blocks.1.rope'" in said and "x.safetensors: has 1 tensor" in said
    assert len(said.splitlines()) == 1
    conr.write_safetensors(source, {k: v for k, v in ours.items() if k != "blocks.1.norm2.bias"})
    assert convert.main([str(source), out]) == 1
    assert "has no tensor 'blocks.1.norm2.bias'" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.safetensors"]


def test_files_of_torch(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    ours = resnet18()
    tensors = {k: torch.from_numpy(np.array(v)) for k, v in ours.items()}
    tensors["conv1.weight"] = torch.nn.Parameter(tensors["conv1.weight"])
    tensors["bn1.bias"] = tensors["bn1.bias"].double()
    tensors["bn1.weight"] = torch.stack([tensors["bn1.weight"]] * 2, 1)[:, 1]  # strided
    path = tmp_path / "epoch=3.ckpt"
    torch.save({"epoch": 3, "state_dict": {"backbone." + k: v for k, v in tensors.items()},
                "hyper_parameters": Odd(), "optimizer_states": [{"lr": 0.1}]}, path)
    assert convert.main([str(path), str(tmp_path / "o.safetensors")]) == 0
    assert "resnet18" in capsys.readouterr().out
    got, notes = conr.read_safetensors(tmp_path / "o.safetensors")
    assert notes["prefix"] == "state_dict.backbone."
    assert all((got[k] == ours[k]).all() for k in ours)
    assert convert.main([str(path), "--list"]) == 0
    assert "state_dict.backbone.\tresnet18" in capsys.readouterr().out
    dino = {k: torch.from_numpy(v).half() for k, v in vits()["DINO"].items()}
    torch.save({"teacher": {"module.backbone." + k: v for k, v in dino.items()}, "epoch": 1}, path)
    assert convert.main([str(path), str(tmp_path / "o.safetensors")]) == 0
    got, notes = conr.read_safetensors(tmp_path / "o.safetensors")
    assert notes["prefix"] == "teacher.module.backbone."
    assert all((got[k] == v.float().numpy()).all() for k, v in dino.items())


class Odd:
    """Something that only the checkpoint's own program knows."""

    def __init__(self):
        self.x = {"a": 1}


class Evil:
    def __reduce__(self):
        return os.system, ("touch run-by-pickle",)


def test_nothing_in_a_file_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a.pth", "b.pth"):
        with zipfile.ZipFile(name, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps({"state_dict": Evil()}))
    assert convert.main(["a.pth", "out.safetensors"]) == 1
    assert "no ResNet" in capsys.readouterr().err
    (tmp_path / "old.pth").write_bytes(pickle.dumps(Evil()))
    assert convert.main(["old.pth", "out.safetensors"]) == 1
    (tmp_path / "cut.pth").write_bytes((tmp_path / "b.pth").read_bytes()[:60])
    assert convert.main(["cut.pth", "out.safetensors"]) == 1
    assert convert.main(["missing.pth", "out.safetensors"]) == 1
    assert not list(tmp_path.glob("run-by-pickle")) and not list(tmp_path.glob("out*"))
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_safetensors_round_trip(tmp_path):
    path = tmp_path / "x.safetensors"
    given = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(7),
             "c": np.zeros((0, 3), np.float16), "d": np.array([[True, False]]).T}
    conr.write_safetensors(path, given, {"note": "text"})
    got, notes = conr.read_safetensors(path)
    assert notes == {"note": "text"} and all((got[k] == v).all() and got[k].shape == v.shape
                                             and got[k].dtype == v.dtype for k, v in given.items())
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(conr.FormatError, match="cut short"):
        conr.read_safetensors(path)
