#!/usr/bin/python3
"""Golden values for the test of foreign files: ResNets as others save them, and their features.

    golden/make_resnets.py            write the files next to this script
    golden/make_resnets.py --check    compute them again and compare with the files

Needs torch, torchvision, timm, transformers and safetensors; the test that reads the files needs
none of them.  Values depend on the versions of these libraries only through their rounding.

resnets/hf50.safetensors    Hugging Face's ResNetModel with bottlenecks, depths 3,4,6,3, width 2
resnets/hf18.safetensors    its ResNetForImageClassification with basic blocks, depths 2,2,2,2, width
                            4; names with the prefix resnet., a classifier; fp16
resnets/hf101.safetensors   its ResNetModel with bottlenecks, depths 3,4,23,3, width 1; bf16
    All under Hugging Face's own names, written by safetensors.torch.
resnets.safetensors         NAME.images [2,h,w,3], normalized; NAME.features [2,d] after the mean pool,
                            computed in float64 from the stored weights, in eval mode

timm's names are torchvision's: that its resnet50 takes the state of torchvision's and gives the same
features is asserted here, so golden/torchvision50.safetensors holds for both.
"""
import argparse
import sys

import numpy as np
import torch
import torchvision

import make

try:
    import safetensors.torch
    import timm
    import transformers
except ImportError as e:
    print(f"skipped: {e.name} cannot be imported")
    sys.exit(0)

MODELS = {  # depths, width, block, image classification, type of the weights, height and width
    "hf50": ((3, 4, 6, 3), 2, "bottleneck", False, torch.float32, 32),
    "hf18": ((2, 2, 2, 2), 4, "basic", True, torch.float16, 48),
    "hf101": ((3, 4, 23, 3), 1, "bottleneck", False, torch.bfloat16, 32),
}


def build(depths, width, block, classify, *rest):
    wide = 4 if block == "bottleneck" else 1
    config = transformers.ResNetConfig(
        embedding_size=width, hidden_sizes=[wide * width << i for i in range(4)],
        depths=list(depths), layer_type=block, num_labels=5)
    kind = transformers.ResNetForImageClassification if classify else transformers.ResNetModel
    return kind(config).double().eval()


def draw(rng, model, dtype):
    """Random weights, exact in dtype; the last norm of a block has small ones."""
    for name, value in model.state_dict().items():
        shape = tuple(value.shape)
        if name.endswith("running_var"):
            drawn = rng.uniform(0.5, 2, shape)
        elif name.endswith("num_batches_tracked"):
            drawn = np.full(shape, 7)
        elif value.dim() == 1:
            drawn = rng.uniform(0.4, 1.2, shape) if name.endswith("weight") else \
                0.3 * rng.standard_normal(shape)
        else:
            drawn = rng.standard_normal(shape) * (2 / value[0].numel()) ** 0.5
        value.copy_(torch.as_tensor(drawn).to(dtype).double())


def check_timm():
    theirs = torchvision.models.resnet50(weights=None).double().eval()
    theirs.fc = torch.nn.Identity()
    make.fill_by_formula(theirs)
    ours = timm.create_model("resnet50", num_classes=0).double().eval()
    ours.load_state_dict(theirs.state_dict())  # strict: the same names and shapes
    x = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(ours(x), theirs(x), rtol=1e-9)


def make_all():
    """File name -> bytes."""
    files, values = {}, {}
    for name, about in MODELS.items():
        rng = np.random.default_rng([make.SEED, *name.encode()])
        dtype, side = about[4:]
        model = build(*about)
        draw(rng, model, dtype)
        images = make.normal(rng, 2, side, side, 3)
        with torch.no_grad():
            features = getattr(model, "resnet", model)(make.nchw(images)).pooler_output.flatten(1)
        assert 0.1 < features.abs().mean() < 10
        values.update({f"{name}.images": images, f"{name}.features": features})
        state = {k: v if v.dtype == torch.int64 else v.to(dtype).contiguous()
                 for k, v in model.state_dict().items()}
        files[f"resnets/{name}.safetensors"] = safetensors.torch.save(state, {"format": "pt"})
    versions = {"made_by": "golden/make_resnets.py", "timm": timm.__version__,
                "transformers": transformers.__version__}
    files["resnets.safetensors"] = make.pack(values, {**make.make_metadata(make.SEED), **versions})
    return files


def main():
    parser = argparse.ArgumentParser(description="Make the golden files of foreign ResNets.")
    parser.add_argument("--check", action="store_true", help="compare with the files, write none")
    options = parser.parse_args()
    torch.set_num_threads(1)
    check_timm()
    bad = False
    (make.HERE / "resnets").mkdir(exist_ok=True)
    for name, data in make_all().items():
        path, verdict = make.HERE / name, "written"
        if not options.check:
            path.write_bytes(data)
        elif "/" in name:
            verdict = "same" if path.exists() and path.read_bytes() == data else "DIFFERENT bytes"
        else:
            verdict = make.check(name, data)
        bad |= not verdict.startswith(("same", "written"))
        print(f"{name:28s} {len(data):8d} bytes  {verdict}")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
