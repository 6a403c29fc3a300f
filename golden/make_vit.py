"""make_vit.py: writes vit.json: names and shapes of the tensors of small vision transformers, as their
libraries have them, and the features they give.  Weights and images are not stored: both sides draw
them from the names (`draw`).

    pip install torch timm transformers open_clip_torch && python golden/make_vit.py

Original DINO and DINOv2 are not packages; their position embeddings are interpolated here as their
repositories do (interpolate_pos_encoding), the rest is the same network under other names."""
import json
import math
import os
import tempfile
import warnings

import numpy as np
import open_clip.transformer
import timm
import timm.models.vision_transformer
import torch
import torch.nn.functional as F
import transformers as hf
from safetensors.torch import load_file, save_file
from functools import partial

warnings.filterwarnings("ignore")
D, HEADS, DEPTH, MLP = 128, 2, 2, 256
MASK = (1 << 64) - 1


def draw(name, count):
    """count numbers in [-1,1): SplitMix64 of FNV-1a of the name, 24 bits each."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    with np.errstate(over="ignore"):
        x = np.uint64(h) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(40)).astype(np.float64) / 2**23 - 1


def spread(name, shape):
    """Deviation and mean of a tensor, so that every part matters."""
    if "norm" in name.lower() or ".ln_" in name or "pre_layrnorm" in name:
        return (0.3, 1.0) if name.endswith("weight") else (0.3, 0.0)
    if "gamma" in name or "lambda" in name:
        return 0.3, 0.6
    if "position" in name or "pos_embed" in name or "token" in name or "class_embedding" in name or "probe" in name or "latent" in name:
        return 0.7, 0.0
    if len(shape) >= 2:
        fan = shape[0] if name.endswith(".proj") else math.prod(shape[1:])
        return round(math.sqrt(3 / fan), 6), 0.0
    return 0.3, 0.0


def weights(shapes, kind):
    out, listed = {}, []
    for name, shape in shapes.items():
        scale, mean = spread(name, shape)
        v = torch.from_numpy((draw(name, math.prod(shape)) * scale + mean).astype(np.float32))
        v = v.reshape(shape)
        out[name] = v.to({"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[kind]).float()
        listed.append([name, list(shape), scale, mean])
    return out, listed


def images(size):
    x = np.stack([draw(f"image {i}", size * size * 3).reshape(size, size, 3) for i in range(2)])
    return torch.from_numpy((1.5 * x).astype(np.float32)).permute(0, 3, 1, 2)


result = {"versions": {"torch": torch.__version__, "timm": timm.__version__, "transformers": hf.__version__,
                       "open_clip": open_clip.__version__}, "models": []}


def add(title, family, kind, shapes, build, sizes):
    """build(weights, size) -> features of images [n,3,size,size]."""
    w, listed = weights(shapes, kind)
    features = {}
    for size in sizes:
        with torch.no_grad():
            y = build(w, size)(images(size))
        assert y.shape[0] == 2 and torch.isfinite(y).all()
        features[str(size)] = [[float(f"{v:.7g}") for v in row] for row in y.tolist()]
    result["models"].append({"title": title, "family": family, "type": kind, "tensors": listed, "features": features})
    print(title, {k: len(v[0]) for k, v in features.items()})


def shapes_of(module, prefix=""):
    return {prefix + k: tuple(v.shape) for k, v in module.state_dict().items() if "position_ids" not in k}


def loaded(module, w, prefix=""):
    module.load_state_dict({k[len(prefix):]: v for k, v in w.items() if k.startswith(prefix)}, strict=False)
    return module.eval()


# ---- timm
def vit(size=48, patch=16, classes=0, **more):
    return timm.models.vision_transformer.VisionTransformer(
        img_size=size, patch_size=patch, embed_dim=D, depth=DEPTH, num_heads=HEADS, mlp_ratio=MLP / D,
        num_classes=classes, dynamic_img_size=True, **more)


def timm_features(**how):
    def build(w, size):
        m = loaded(vit(**how), w)
        return lambda x: m.forward_head(m.forward_features(x), pre_logits=True)
    return build


for title, family, kind, sizes, how in [
    ("timm, a classifier", "ViT", "F32", (48, 80, 32), dict(classes=10)),
    ("timm, mean", "ViT", "F16", (48,), dict(classes=10, global_pool="avg")),
    ("timm, DINOv2 with registers", "DINOv2", "F32", (70, 42),
     dict(size=70, patch=14, init_values=1e-5, reg_tokens=4, no_embed_class=True)),
    ("timm, CLIP", "CLIP", "F32", (48,),
     dict(pre_norm=True, norm_layer=partial(torch.nn.LayerNorm, eps=1e-5))),
    ("timm, SigLIP", "SigLIP", "BF16", (48, 64), dict(class_token=False, global_pool="map")),
]:
    add(title, family, kind, shapes_of(vit(**how)), timm_features(**how), sizes)

deit = timm.models.deit.VisionTransformerDistilled(img_size=48, patch_size=16, embed_dim=D, depth=DEPTH,
                                                   num_heads=HEADS, mlp_ratio=MLP / D, num_classes=7)
add("timm, DeiT", "DeiT", "F32", shapes_of(deit),
    lambda w, size: lambda x: loaded(deit, w).forward_features(x)[:, 0], (48,))


# ---- original DINO: timm's names and network, other positions
def resize_original(position, grid):
    n = int(math.sqrt(position.shape[1] - 1))
    if n == grid:
        return position
    p = position[:, 1:].reshape(1, n, n, -1).permute(0, 3, 1, 2)
    scale = (grid + 0.1) / n
    p = F.interpolate(p, scale_factor=(scale, scale), mode="bicubic")
    assert p.shape[-1] == grid
    return torch.cat([position[:, :1], p.permute(0, 2, 3, 1).reshape(1, grid * grid, -1)], 1)


def dino(w, size):
    w = dict(w, pos_embed=resize_original(w["pos_embed"], size // 16))
    m = loaded(vit(size=size), w)
    return lambda x: m.forward_features(x)[:, 0]


add("DINO", "DINO", "F32", shapes_of(vit()), dino, (48, 80))

# ---- Hugging Face, by way of files: the modules have other names
sizes = dict(hidden_size=D, num_hidden_layers=DEPTH, num_attention_heads=HEADS, image_size=70, patch_size=14)
wide = dict(sizes, intermediate_size=MLP)


def hf_shapes(module, prefix=""):
    with tempfile.TemporaryDirectory() as folder:
        module.save_pretrained(folder)
        return {prefix + k: tuple(v.shape) for k, v in load_file(folder + "/model.safetensors").items()}


def hf_loaded(module, w, prefix=""):
    with tempfile.TemporaryDirectory() as folder:
        module.save_pretrained(folder)
        save_file({k[len(prefix):]: v.contiguous() for k, v in w.items()}, folder + "/model.safetensors",
                  metadata={"format": "pt"})
        m, info = type(module).from_pretrained(folder, output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    return m.eval()


def hf_features(module, take, prefix="", **call):
    return lambda w, size: lambda x: take(hf_loaded(module, w, prefix)(x, **call))


def first(y):
    return y.last_hidden_state[:, 0]


dinov2 = hf.Dinov2Model(hf.Dinov2Config(mlp_ratio=MLP // D, **sizes))
with_registers = hf.Dinov2WithRegistersModel(hf.Dinov2WithRegistersConfig(mlp_ratio=MLP // D, **sizes))
add("Hugging Face, DINOv2", "DINOv2", "F32", hf_shapes(dinov2), hf_features(dinov2, first), (70, 42, 98))
add("Hugging Face, DINOv2 with registers", "DINOv2", "F16", hf_shapes(with_registers),
    hf_features(with_registers, first), (70, 42))
plain = hf.ViTModel(hf.ViTConfig(**wide))
add("Hugging Face, ViT", "ViT", "F32", hf_shapes(plain),
    hf_features(plain, first, interpolate_pos_encoding=True), (70, 42))
distilled = hf.DeiTModel(hf.DeiTConfig(**wide))
add("Hugging Face, DeiT", "DeiT", "F32", hf_shapes(distilled), hf_features(distilled, first), (70,))
clip = hf.CLIPVisionModelWithProjection(hf.CLIPVisionConfig(projection_dim=40, **wide))
add("Hugging Face, CLIP", "CLIP", "F32", hf_shapes(clip),
    hf_features(clip, lambda y: y.image_embeds, interpolate_pos_encoding=True), (70, 98))
siglip = hf.SiglipVisionModel(hf.SiglipVisionConfig(**wide))
add("Hugging Face, SigLIP", "SigLIP", "F32", hf_shapes(siglip, "vision_model."),
    hf_features(siglip, lambda y: y.pooler_output, "vision_model.", interpolate_pos_encoding=True), (70, 56))

# ---- OpenAI's names, as open_clip has them
tower = open_clip.transformer.VisionTransformer(
    image_size=48, patch_size=16, width=D, layers=DEPTH, heads=HEADS, mlp_ratio=MLP / D, output_dim=40,
    act_layer=open_clip.transformer.QuickGELU)
add("open_clip", "CLIP", "F16", shapes_of(tower, "visual."),
    lambda w, size: lambda x: loaded(tower, w, "visual.")(x), (48,))


# ---- original DINOv2: timm's names around Hugging Face's network, and its own positions
def original_shapes(shapes):
    out = {}
    for name, shape in shapes.items():
        if "attention.key" in name or "attention.value" in name:
            continue
        if "attention.query" in name:
            shape = (3 * shape[0],) + shape[1:]
        out[rename(name)] = shape
    return out


def rename(name):
    for a, b in [("attention.attention.query", "attn.qkv"), ("attention.output.dense", "attn.proj"),
                 ("layer_scale1.lambda1", "ls1.gamma"), ("layer_scale2.lambda1", "ls2.gamma"),
                 ("encoder.layer.", "blocks."), ("embeddings.patch_embeddings.projection", "patch_embed.proj"),
                 ("embeddings.position_embeddings", "pos_embed"), ("embeddings.", ""), ("layernorm.", "norm.")]:
        name = name.replace(a, b)
    return name


def original_weights(w, names):
    out = {}
    for name in names:
        for i, part in enumerate(("query", "key", "value")):
            if "attention." + part in name:
                out[name] = w[rename(name.replace("attention." + part, "attention.query"))].chunk(3)[i]
        if name not in out:
            out[name] = w[rename(name)]
    return out


def dinov2_features(module):
    names = hf_shapes(module)

    def build(w, size):
        m = hf_loaded(module, original_weights(w, names))
        if module is dinov2:
            position = resize_original(w["pos_embed"], size // 14)
            m.embeddings.interpolate_pos_encoding = lambda *_: position
        return lambda x: first(m(x))
    return build


add("DINOv2", "DINOv2", "F32", original_shapes(hf_shapes(dinov2)), dinov2_features(dinov2), (70, 42))
add("DINOv2 with registers", "DINOv2", "F32", original_shapes(hf_shapes(with_registers)),
    dinov2_features(with_registers), (70, 42))

# ---- the interpolation alone: other numbers of positions, both ways
for how in ("plain", "offset", "antialias"):
    for old, new in ((7, 5), (5, 16), (37, 16)):
        p = torch.from_numpy(draw("positions", old * old * 3).astype(np.float32)).reshape(1, old, old, 3).permute(0, 3, 1, 2)
        if how == "offset":
            q = F.interpolate(p, scale_factor=((new + 0.1) / old,) * 2, mode="bicubic")
        else:
            q = F.interpolate(p, size=(new, new), mode="bicubic", antialias=how == "antialias")
        few = q[0].permute(1, 2, 0).reshape(-1, 3)[:: max(1, new * new // 8)]
        result.setdefault("positions", []).append(
            {"how": how, "from": old, "to": new, "step": max(1, new * new // 8),
             "values": [float(f"{v:.7g}") for v in few.flatten().tolist()]})

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "vit.json"), "w") as out:
    json.dump(result, out, separators=(",", ":"))
    out.write("\n")
