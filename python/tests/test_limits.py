"""What cannot be passed to C is refused in Python, by name: integers beyond their type, zero bytes."""
import ctypes

import numpy as np
import pytest
from conftest import TINY

import conr
from conr import _library as L
from conr import metrics

X = np.random.default_rng(3).standard_normal((40, 6)).astype(np.float32)
Y = np.arange(40) % 4
WRAPS = 2**32 + 5  # 5 in an int


@pytest.mark.parametrize("name", ["k", "k1", "k2", "layers", "threads"])
@pytest.mark.parametrize("value", [WRAPS, -2**32 + 3, 2**31, 2**64 + 2])
def test_neighbors(name, value):
    with pytest.raises(ValueError, match=rf"^{name}[: ]"):
        conr.neighbors(X, **{name: value})


@pytest.mark.parametrize("name", ["n_clusters", "n_init", "max_iter", "threads", "random_state"])
def test_kmeans(name):
    with pytest.raises(ValueError, match=name):
        conr.KMeans(**{name: 2**64 + 3 if name == "random_state" else WRAPS}).fit(X)


@pytest.mark.parametrize("call", [
    lambda: conr.choose_clusters(X, low=2**32 + 2, high=5),
    lambda: conr.choose_clusters(X, high=WRAPS),
    lambda: conr.choose_clusters(X, seed=2**64 + 1),
    lambda: conr.choose_clusters(X, threads=WRAPS),
    lambda: conr.assign(X, X[:2], threads=WRAPS),
    lambda: conr.boundary(X, X[:2], threads=WRAPS),
    lambda: conr.boundary(X, X[:4], Y + 2**32),
    lambda: conr.boundary_fraction(WRAPS),
    lambda: conr.boundary_fraction(1, relax_epochs=WRAPS),
    lambda: metrics.silhouette(X, Y, seed=2**64 + 1),
    lambda: metrics.silhouette(X, Y, threads=WRAPS),
    lambda: metrics.knn(X, Y, k=WRAPS),
    lambda: metrics.knn(X, Y, threads=WRAPS),
    lambda: metrics.purity(conr.neighbors(X).astype(np.int64) + 2**32, Y),
    lambda: metrics.nmi(Y, Y.astype(np.uint64) + np.uint64(2**63)),
    lambda: conr.load("nowhere", threads=WRAPS),
    lambda: conr.DeepCluster(2, threads=WRAPS, progress=False).fit(np.zeros((4, 8, 8), np.uint8)),
    lambda: conr.DeepCluster(WRAPS, progress=False).fit(np.zeros((4, 8, 8), np.uint8)),
    lambda: conr.DeepCluster(2, seed=WRAPS, progress=False).fit(np.zeros((4, 8, 8), np.uint8)),
])
def test_other_calls(call):
    with pytest.raises(ValueError, match="; "):
        call()


def test_whole_numbers_of_numpy_are_fine():
    assert (conr.neighbors(X, k=np.int64(5)) == conr.neighbors(X, k=5)).all()
    assert (conr.KMeans(np.int32(3), random_state=np.int64(2)).fit_predict(X)
            == conr.KMeans(3, random_state=2).fit_predict(X)).all()
    with pytest.raises((TypeError, ValueError), match="k"):
        conr.neighbors(X, k=2.5)


def test_no_options_wrap():
    """Every integer of every structure that we fill."""
    for kind in (L.CNeighborsOptions, L.CKmeansOptions, L.CImagesOptions, L.CTrainOptions):
        for name, of in kind._fields_:
            if of in (ctypes.c_int, ctypes.c_int64, ctypes.c_uint64):
                with pytest.raises(ValueError, match=name):
                    setattr(kind(), name, 2**64 + 7)


@pytest.mark.parametrize("call", [
    lambda p: conr.load(p),
    lambda p: conr.DeepCluster(2, progress=False).fit(p),
    lambda p: conr.DeepCluster(2, progress=False, **TINY).fit([p, p]),
    lambda p: conr.DeepCluster(2, out=p, progress=False, **TINY).fit(np.zeros((8, 16, 16), "u1")),
    lambda p: conr.DeepCluster(2, init=p, progress=False).fit(np.zeros((8, 16, 16), "u1")),
    lambda p: conr.DeepCluster(2, recipe=p, progress=False).fit(np.zeros((8, 16, 16), "u1")),
    lambda p: conr.DeepCluster(2, classes=p, progress=False).fit(np.zeros((8, 16, 16), "u1")),
    lambda p: conr.KMeans(2, device=p).fit(X),
])
def test_a_zero_byte_does_not_cut_a_path_short(call, tmp_path):
    with pytest.raises(ValueError, match="zero byte"):
        call(str(tmp_path) + "/a\0b")


def test_odd_names_in_lists_of_paths(tmp_path):
    from conftest import ROOT

    picture = (ROOT / "golden/images/rgb.png").read_bytes()
    odd = [tmp_path / name for name in ("tab\t3.png", "return.png\r", "plain.png")]
    for path in odd:
        path.write_bytes(picture)
    with L.context() as c:
        from conr._images import opened

        with opened(c, odd) as m:
            assert m.paths() == [str(p) for p in odd] and m.labels() is None
        with pytest.raises(ValueError, match="line break"), opened(c, [tmp_path / "a\nb.png"]):
            pass


def test_outputs_do_not_replace_inputs(fitted, tmp_path):
    run = fitted.run_
    model = (run / "model.safetensors").read_bytes()
    for call in (lambda: fitted.report(run / "model.safetensors"),
                 lambda: conr.write_safetensors(run / "model.safetensors", {"a": np.ones(2)}),
                 lambda: conr.convert.convert(run / "model.safetensors",
                                              run / "model.safetensors")):
        with pytest.raises(ValueError, match="of a run"):
            call()
    assert (run / "model.safetensors").read_bytes() == model
    copy = tmp_path / "m.safetensors"
    copy.write_bytes(model)
    with pytest.raises(ValueError, match="input"):
        conr.convert.convert(copy, tmp_path / "." / "m.safetensors")
    assert copy.read_bytes() == model
    if (run / "report.html").exists():
        assert fitted.report(run / "report.html") == run / "report.html"


def test_settings_override_a_preset_in_any_order(images, tmp_path):
    """A preset sets batch and lr; what is given beside it counts, whatever comes first."""
    small = {**TINY, "epochs": 1, "stage1_epochs": 1, "warmup_epochs": 0}
    for at, given in enumerate([dict(preset="released", k1=7, lr=0.2, **small),
                                dict(k1=7, lr=0.2, **small, preset="released")]):
        out = tmp_path / str(at)
        conr.DeepCluster(2, out=out, progress=False, **given).fit(images[:64])
        said = (out / "options.yaml").read_text().splitlines()
        assert {"preset: released", "k1: 7", "lr: 0.2", "batch: 32"} <= set(said)
