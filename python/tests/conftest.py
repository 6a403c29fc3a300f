"""What the tests share: the checkout's own package and library, a few images, a tiny network."""
import gzip
import os
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

TINY = dict(encoder="small", width=4, size=16, hidden=32, predictor_hidden=32, features=16,
            batch=32, epochs=4, stage1_epochs=2, warmup_epochs=1, restarts=2, eval_every=2,
            log_every=4, threads=1)


def subprocess_environment():
    return dict(os.environ, PYTHONPATH=str(ROOT / "python"), OMP_WAIT_POLICY="passive",
                OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")


@pytest.fixture(scope="session")
def images():
    """256 images of the bundled sample, uint8 [n,28,28]."""
    with gzip.open(ROOT / "samples/fashion-mnist/t10k-images-idx3-ubyte.gz") as f:
        return np.frombuffer(f.read(16 + 256 * 784), np.uint8, offset=16).reshape(-1, 28, 28)


@pytest.fixture(scope="session")
def features():
    """Unit rows around ten centers, and the centers they belong to."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 10, 300)
    x = rng.standard_normal((10, 32))[labels] * 2 + rng.standard_normal((300, 32))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), labels


@pytest.fixture(scope="session")
def fitted(images, tmp_path_factory):
    """A tiny training, done once."""
    import conr

    out = tmp_path_factory.mktemp("deep") / "run"
    return conr.DeepCluster(10, out=out, progress=False, **TINY).fit(images)


@pytest.fixture
def folder(images, tmp_path):
    """A folder of PNG files."""
    from conr._html import png

    for i, image in enumerate(images[:48]):
        (tmp_path / "photos").mkdir(exist_ok=True)
        (tmp_path / "photos" / f"{i:03}.png").write_bytes(png(image[..., None] / 255))
    return tmp_path / "photos"
