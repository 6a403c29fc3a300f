"""Converts checkpoints of other programs to safetensors files for conr.

    python -m conr.convert X.pth out.safetensors

Reads files of torch.save (and Lightning's .ckpt), without torch and without running anything in the
file: a pickle can name any function, but here every name that is not part of a tensor becomes an
empty object.  Finds the ResNets in the file (the authors' CoNR code and ProPos: encoder_q,
encoder_k; solo-learn: backbone, momentum_backbone; torchvision and timm: no prefix; Hugging Face:
its own names), takes the moving average if there are two, and writes it under torchvision's names.
ResNet-18, -34, -50 and -101 are known; tensors that these do not have are an error that names them.

Vision transformers (timm, DeiT, DINO, DINOv2, CLIP, SigLIP; names of timm, Hugging Face and the
original repositories) keep their names without what wraps them ("state_dict.", "teacher.backbone.",
"module."), for `conr cluster --encoder`; the library checks the result as it does there.
"""
from __future__ import annotations

import argparse
import io
import os
import pickle
import re
import sys
import zipfile
from collections import OrderedDict
from ctypes import byref, c_void_p
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ._library import (Error, FileError, FormatError, InvalidError, check, check_output, context,
                       lib, text)
from .safetensors import PathLike, read_safetensors, write_safetensors

# ---- reading without running ---------------------------------------------------------------------

_storages = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2",
             "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "i1",
             "ByteStorage": "u1", "BoolStorage": "?", "BFloat16Storage": "bf16"}


class _Inert:
    """Stands for anything else that the file names: accepts everything, does nothing."""

    def __new__(cls, *args: Any, **named: Any) -> "_Inert":
        return object.__new__(cls)

    def __init__(self, *args: Any, **named: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass

    def extend(self, values: Any) -> None:
        pass


def _tensor(storage: np.ndarray, offset: int, size: Sequence[int], stride: Sequence[int],
            *rest: Any) -> np.ndarray:
    """A tensor as a view of its storage; refused if it would reach outside."""
    if len(size) != len(stride) or min([offset, *size, *stride]) < 0:
        raise ValueError("a tensor's shape makes no sense")
    if 0 in size:
        return np.zeros(tuple(size), storage.dtype)
    if offset + sum((n - 1) * step for n, step in zip(size, stride)) >= len(storage):
        raise ValueError("a tensor reaches outside its storage")
    return np.lib.stride_tricks.as_strided(storage[offset:], tuple(size),
                                           [step * storage.itemsize for step in stride],
                                           writeable=False)


class _Reader(pickle.Unpickler):
    def __init__(self, archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(io.BytesIO(archive.read(folder + "data.pkl")))
        self.archive, self.folder = archive, folder

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch._utils" and name in ("_rebuild_tensor", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch._utils" and name == "_rebuild_parameter":
            return lambda data, *rest: data
        if module == "torch" and name == "Size":
            return tuple
        if module == "torch" and name in _storages:
            return _storages[name]
        return _Inert

    def persistent_load(self, about: Any) -> Any:
        _, kind, key = about[:3]
        raw = self.archive.read(f"{self.folder}data/{key}")
        if kind == "bf16":  # the upper half of a float32
            return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        if not isinstance(kind, str):
            raise ValueError("elements of an unknown type")
        return np.frombuffer(raw, kind)


def _flat(value: Any, name: str, out: Dict[str, np.ndarray]) -> None:
    """Flattens nested dicts into names with dots."""
    if isinstance(value, np.ndarray):
        out[name] = value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _flat(inner, f"{name}.{key}" if name else str(key), out)


def read_checkpoint(path: PathLike) -> Dict[str, np.ndarray]:
    """All tensors of a checkpoint by name; nothing in the file is run."""
    if str(path).endswith(".safetensors"):
        return read_safetensors(path)[0]
    tensors: Dict[str, np.ndarray] = {}
    try:
        if not zipfile.is_zipfile(path):
            return _read_old(path)
        with zipfile.ZipFile(path) as archive:
            inside = [n for n in archive.namelist() if n.endswith("data.pkl")]
            if not inside:
                raise ValueError("no data.pkl inside")
            _flat(_Reader(archive, inside[0][:-len("data.pkl")]).load(), "", tensors)
    except OSError as e:
        raise FileError(f"{path}: {e.strerror or e}; is the name right?") from e
    except Error:
        raise
    except Exception as e:  # a damaged pickle may raise anything
        why = str(e).partition("\n")[0]
        raise FormatError(f"{path}: not a torch checkpoint, or damaged ({why}); "
                          "download it again") from e
    return tensors


def _read_old(path: PathLike) -> Dict[str, np.ndarray]:
    """Files of torch before 1.6 are not archives; torch itself reads them, weights only."""
    with open(path, "rb"):
        pass
    try:
        import torch
    except ImportError:
        raise FormatError(f"{path}: not an archive, perhaps of torch before 1.6; install torch, or "
                          "save it again with a newer version") from None

    tensors: Dict[str, np.ndarray] = {}

    def arrays(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().cpu().float().numpy()
        return {k: arrays(v) for k, v in value.items()} if isinstance(value, Mapping) else None

    _flat(arrays(torch.load(path, map_location="cpu", weights_only=True)), "", tensors)
    return tensors


# ---- finding the encoder -------------------------------------------------------------------------

_averaged = re.compile(r"encoder_k|momentum|target|teacher|ema")


_hugging_stem = "embedder.embedder.convolution.weight"
_hugging_block = "encoder.stages.0.layers.0.layer.0.convolution.weight"


def _torchvision_names(tensors: Mapping[str, np.ndarray], prefix: str) -> Optional[Dict[str, str]]:
    """Maps first names under this prefix to torchvision's; None if there is no ResNet.

    ProPos and CoNR keep the children of a ResNet in a Sequential: 0 is conv1, 1 is bn1, and the
    four that hold blocks are the layers, whether or not there is a pool in between.  Those of
    Hugging Face become the whole names in _hugging_name.
    """
    if prefix + "conv1.weight" in tensors and prefix + "layer1.0.conv1.weight" in tensors:
        return {part: part for part in ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4")}
    if prefix + _hugging_stem in tensors and prefix + _hugging_block in tensors:
        return {part: part for part in ("embedder", "encoder")}
    blocks = [str(i) for i in range(2, 10) if f"{prefix}{i}.0.conv1.weight" in tensors]
    if len(blocks) == 4 and prefix + "0.weight" in tensors:
        return {"0": "conv1", "1": "bn1", **{b: f"layer{i + 1}" for i, b in enumerate(blocks)}}
    return None


def _hugging_name(name: str) -> str:
    """Hugging Face's name as torchvision's; any other name as it is."""
    name = re.sub(r"^embedder\.embedder\.convolution\.", "conv1.", name)
    name = re.sub(r"^embedder\.embedder\.normalization\.", "bn1.", name)
    name = re.sub(r"^encoder\.stages\.(\d+)\.layers\.",
                  lambda m: f"layer{int(m[1]) + 1}.", name)
    name = re.sub(r"\.layer\.(\d+)\.(convolution|normalization)\.",
                  lambda m: f".{'conv' if m[2][0] == 'c' else 'bn'}{int(m[1]) + 1}.", name)
    return re.sub(r"\.shortcut\.(convolution|normalization)\.",
                  lambda m: f".downsample.{0 if m[1][0] == 'c' else 1}.", name)


_norm = r"\.(weight|bias|running_mean|running_var|num_batches_tracked)"
_known = re.compile(rf"conv1\.weight|bn1{_norm}|layer[1-4]\.\d+\."
                    rf"((conv[123]|downsample\.0)\.weight|(bn[123]|downsample\.1){_norm})")


def find_encoders(tensors: Mapping[str, np.ndarray]) -> List[str]:
    """Prefixes of the ResNets in a checkpoint: moving averages first, then by length."""
    starts = {name[:-len(end)] for name, a in tensors.items() if a.ndim == 4
              for end in ("conv1.weight", "0.weight", _hugging_stem) if name.endswith(end)}
    found = [p for p in starts if _torchvision_names(tensors, p)]
    return sorted(found, key=lambda p: (not _averaged.search(p), len(p), p))


def encoder(tensors: Mapping[str, np.ndarray], prefix: str) -> Dict[str, np.ndarray]:
    """The encoder with this prefix, as float32 under torchvision's names."""
    names = _torchvision_names(tensors, prefix)
    if names is None:
        raise InvalidError(f"prefix {prefix!r}: no ResNet there; --list shows the prefixes")
    out, unknown = {}, []
    for name, a in tensors.items():
        first, dot, rest = name[len(prefix):].partition(".")
        if not name.startswith(prefix) or not dot or first not in names:
            continue
        ours = _hugging_name(f"{names[first]}.{rest}")
        if not _known.fullmatch(ours):
            unknown.append(name)
        whole = ours.endswith(".num_batches_tracked")
        out[ours] = np.ascontiguousarray(
            a, np.int64 if whole else np.float32).reshape(a.shape)
    if unknown:
        more = f" and {len(unknown) - 8} more" if len(unknown) > 8 else ""
        raise FormatError(f"{prefix or 'the encoder'}: not a plain ResNet, because of its tensors "
                          f"{', '.join(unknown[:8])}{more}; conr has only "
                          "ResNet-18, -34, -50 and -101")
    return out


_depths = {("basic", 2, 2, 2, 2): "resnet18", ("basic", 3, 4, 6, 3): "resnet34",
           ("bottleneck", 3, 4, 6, 3): "resnet50", ("bottleneck", 3, 4, 23, 3): "resnet101",
           ("basic", 1, 1, 1, 0): "small"}  # conr's own


def _shape(weights: Mapping[str, np.ndarray]) -> Tuple[Any, ...]:
    """The kind of its blocks, and how many of them there are in each stage."""
    kind = "bottleneck" if "layer1.0.conv3.weight" in weights else "basic"
    return kind, *(len([n for n in weights if re.fullmatch(rf"layer{i}\.\d+\.conv1\.weight", n)])
                   for i in range(1, 5))


def describe(weights: Mapping[str, np.ndarray]) -> str:
    shape = _shape(weights)
    kind = _depths.get(shape, f"a ResNet of {sum(shape[1:])} {shape[0]} blocks")
    width, channels, side, _ = weights["conv1.weight"].shape
    stem = {3: "small" if kind == "small" else "cifar", 7: "imagenet"}.get(side, f"{side}x{side}")
    return f"{kind}, stem {stem}, width {width}, {channels} channels"


# ---- vision transformers -------------------------------------------------------------------------

# the patches, the positions, what comes before the number of a block
_vits = [("patch_embed.proj.weight", "pos_embed", "blocks."),
         ("embeddings.patch_embeddings.projection.weight", "embeddings.position_embeddings",
          "encoder.layer."),
         ("conv1.weight", "positional_embedding", "transformer.resblocks."),
         ("embeddings.patch_embedding.weight", "embeddings.position_embedding.weight",
          "encoder.layers.")]
# what libraries put before the names themselves: the rest of a prefix is a wrapper
_own_prefix = re.compile(r"(?:(?:clip|vit|deit|dinov2\w*|vision_model|visual)\.)*$")


def _vit_form(tensors: Mapping[str, np.ndarray], prefix: str) -> Optional[Tuple[str, str, str]]:
    for form in _vits:
        if (prefix + form[0] in tensors and prefix + form[1] in tensors
                and any(name.startswith(f"{prefix}{form[2]}0.") for name in tensors)):
            return form
    return None


def find_vits(tensors: Mapping[str, np.ndarray]) -> List[str]:
    """Prefixes of the vision transformers in a checkpoint, in the order of find_encoders."""
    starts = {name[:-len(form[0])] for name, a in tensors.items() if a.ndim == 4
              for form in _vits if name.endswith(form[0])}
    found = [p for p in starts if _vit_form(tensors, p)]
    return sorted(found, key=lambda p: (not _averaged.search(p), len(p), p))


def vit(tensors: Mapping[str, np.ndarray], prefix: str) -> Dict[str, np.ndarray]:
    """The vision transformer with this prefix, as float32 under the names of its library."""
    match = _own_prefix.search(prefix)
    own = match[0] if match else ""
    wrapper = prefix[:len(prefix) - len(own)]
    beside = "visual_projection.weight"  # of CLIP, outside of its image tower
    out = {name[len(wrapper):]: np.ascontiguousarray(a, np.float32).reshape(a.shape)
           for name, a in tensors.items()
           if a.dtype.kind == "f" and (name.startswith(prefix) or name == wrapper + beside)}
    return out


def describe_vit(weights: Mapping[str, np.ndarray]) -> str:
    prefix = find_vits(weights)[0]
    form = _vit_form(weights, prefix)
    assert form
    d, _, patch, _ = weights[prefix + form[0]].shape
    depth = len({name[len(prefix + form[2]):].partition(".")[0] for name in weights
                 if name.startswith(prefix + form[2])})
    return f"a vision transformer, patches of {patch} pixels, width {d}, {depth} blocks"


def _write_vit(source: PathLike, target: PathLike, weights: Mapping[str, np.ndarray],
               notes: Mapping[str, str]) -> None:
    """Writes the file if the library can use it; else raises what the library says of it."""
    unchecked, handle = f"{os.fspath(target)}.unchecked", c_void_p()
    try:
        write_safetensors(unchecked, weights, notes)
        with context("cpu", 1) as c:
            check(lib.conr_encoder_open(c.handle, text(unchecked, "path"), None, byref(handle)))
            lib.conr_encoder_close(handle)
        os.replace(unchecked, target)
    except Error as e:
        raise type(e)(str(e).replace(unchecked, os.fspath(source))) from None
    finally:
        if os.path.exists(unchecked):
            os.unlink(unchecked)


# ---- the whole -----------------------------------------------------------------------------------

def _describe(tensors: Mapping[str, np.ndarray], prefix: str) -> str:
    if prefix in find_vits(tensors):
        return describe_vit(vit(tensors, prefix))
    return describe(encoder(tensors, prefix))


def convert(source: PathLike, target: PathLike, *, prefix: Optional[str] = None,
            online: bool = False) -> Tuple[str, Dict[str, np.ndarray]]:
    """Writes the encoder of a checkpoint as safetensors; returns its prefix and weights."""
    check_output(target, source)
    tensors = read_checkpoint(source)
    vits = find_vits(tensors)
    if prefix is None:
        chosen = [p for p in find_encoders(tensors) + vits if not online or not _averaged.search(p)]
        if not chosen:
            raise FormatError(f"{source}: no ResNet and no vision transformer among its "
                              f"{len(tensors)} tensors; is it a checkpoint of an encoder?")
        prefix = chosen[0]
    notes = {"source": str(source), "prefix": prefix}
    if prefix in vits:
        weights = vit(tensors, prefix)
        _write_vit(source, target, weights, notes)
        return prefix, weights
    weights = encoder(tensors, prefix)
    if _shape(weights) not in _depths:
        raise FormatError(f"{source}: {describe(weights)}; conr has only ResNet-18, -34, -50 and -101")
    write_safetensors(target, weights, notes)
    return prefix, weights


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m conr.convert", description=(
        "Convert a ResNet (authors' code, ProPos, solo-learn, torchvision, timm, Hugging Face) to a "
        "safetensors file for conr train --init, or a vision transformer (timm, DINO, DINOv2, CLIP, "
        "SigLIP) to one for conr cluster --encoder. Nothing in the file is run."))
    parser.add_argument("source", help="checkpoint: X.pth, X.ckpt, or a file without extension")
    parser.add_argument("target", nargs="?",
                        help="file to write; default: the name of the source with .safetensors")
    parser.add_argument("--prefix", help="prefix of the encoder, if there are several")
    parser.add_argument("--online", action="store_true",
                        help="take the online encoder, not its moving average")
    parser.add_argument("--list", action="store_true", help="list the encoders and write nothing")
    a = parser.parse_args(arguments)
    try:
        if a.list:
            tensors = read_checkpoint(a.source)
            for prefix in find_encoders(tensors) + find_vits(tensors):
                print(f"{prefix or '(no prefix)'}\t{_describe(tensors, prefix)}")
            return 0
        target = a.target or re.sub(r"\.(pth|pt|ckpt|tar)$", "", a.source) + ".safetensors"
        prefix, weights = convert(a.source, target, prefix=a.prefix, online=a.online)
        what = describe_vit(weights) if find_vits(weights) else describe(weights)
        print(f"{target}: {what}; from {prefix or 'names without a prefix'}")
        return 0
    except (Error, OSError) as e:
        print(f"conr.convert: {e}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
