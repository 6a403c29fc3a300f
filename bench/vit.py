"""vit.py: features of a pretrained ViT-S/14 by conr and by PyTorch, beside each other in one process.

    python bench/vit.py [--library build/libconr.so] [--threads 2] [--images 32] [--rounds 5]

Both get 224 x 224 pixels; weights are random (time does not depend on them).  conr's time includes
normalizing bytes, PyTorch's starts from normalized tensors.  Rounds alternate, and the best of each
counts: other programs on the machine only ever add time.  CPU seconds of all threads are printed
beside the clock's: on a busy machine they say more."""
import argparse
import ctypes
import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # waiting is not work
import tempfile
import time

import numpy as np
import timm
import torch
from safetensors.torch import save_file


class Conr:
    def __init__(self, library, threads, weights, pixels):
        self.c = c = ctypes.CDLL(library)
        c.conr_error.restype = ctypes.c_char_p
        self.context, self.images, self.encoder = (ctypes.c_void_p() for _ in range(3))
        settings = (ctypes.c_char_p * 2)(b"resize=0", None)
        self.check(c.conr_open(b"cpu", threads, ctypes.byref(self.context)))
        options = (ctypes.c_char * 64)()
        self.check(c.conr_images_open(self.context, pixels.encode(), options, None, None, ctypes.byref(self.images)))
        self.check(c.conr_encoder_open(self.context, weights.encode(), settings, ctypes.byref(self.encoder)))

    def check(self, code):
        if code < 0:
            raise RuntimeError(self.c.conr_error().decode())

    def __call__(self):
        rows, n, d = ctypes.POINTER(ctypes.c_float)(), ctypes.c_int64(), ctypes.c_int64()
        self.check(self.c.conr_encode(self.context, self.encoder, self.images, ctypes.byref(rows), ctypes.byref(n),
                                      ctypes.byref(d)))
        out = np.ctypeslib.as_array(rows, (n.value, d.value)).copy()
        self.c.conr_free(rows)
        return out


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser()
    p.add_argument("--library", default=os.path.join(here, "../build/libconr.so"))
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--images", type=int, default=32)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--compile", action="store_true", help="torch.compile, too")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    net = timm.create_model("vit_small_patch14_dinov2", img_size=224, num_classes=0).eval()
    pixels = np.random.default_rng(1).integers(0, 256, (o.images, 224, 224, 3), dtype=np.uint8)
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x = ((torch.from_numpy(pixels).float() / 255 - mean) / deviation).permute(0, 3, 1, 2).contiguous()

    def peer(module):
        def run():
            with torch.inference_mode():
                return torch.nn.functional.normalize(module(x)).numpy()
        return run

    with tempfile.TemporaryDirectory() as folder:
        save_file(net.state_dict(), folder + "/w.safetensors")
        np.save(folder + "/x.npy", pixels)
        sides = {"conr": Conr(o.library, o.threads, folder + "/w.safetensors", folder + "/x.npy"), "torch": peer(net)}
        if o.compile:
            sides["torch.compile"] = peer(torch.compile(net))
        best = {k: float("inf") for k in sides}
        work = dict(best)
        results = {k: run() for k, run in sides.items()}  # warm up
        for _ in range(o.rounds):
            for name, run in sides.items():
                start, used = time.perf_counter(), time.process_time()
                run()
                best[name] = min(best[name], time.perf_counter() - start)
                work[name] = min(work[name], time.process_time() - used)
    print(f"ViT-S/14, 224 pixels, {o.images} images, {o.threads} threads, torch {torch.__version__}")
    for name, seconds in best.items():
        error = np.abs(results[name] - results["conr"]).max()
        print(f"{name:14} {seconds:7.3f} s  {o.images / seconds:7.2f} images/s  conr is {seconds / best['conr']:.2f}x"
              f"  CPU {work[name]:7.3f} s  conr is {work[name] / work['conr']:.2f}x  largest difference {error:.1e}")


main()
