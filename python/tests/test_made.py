"""Features in place of a training: DeepCluster.fit(features), encoders, heads, graphs."""
import json
import pickle
import warnings

import numpy as np
import pytest

import conr
from conr.safetensors import write_safetensors
from conftest import ROOT

PLAIN = dict(refine="none", method="kmeans", progress=False, threads=1)


def built(call):
    """call(), or the test is skipped where that part of the library is a placeholder."""
    try:
        return call()
    except conr.InvalidError as e:
        if "not built yet" in str(e):
            pytest.skip(str(e))
        raise


def test_features_are_clustered(features, tmp_path):
    x, labels = features
    made = conr.DeepCluster(10, out=tmp_path / "run", **PLAIN).fit(x)
    assert conr.metrics.nmi(labels, made.labels_) > 0.95 and made.n_clusters_ == 10
    assert np.allclose(made.embedding_, x, atol=1e-6) and made.cluster_centers_.shape == (10, 32)
    assert (made.predict(x) == made.labels_).all() and made.result_["method"] == "kmeans"
    assert made.result_["agreement"] > 0.5 and made.scores_ == {}
    assert np.allclose(made.transform(x[:5] * 7), made.embedding_[:5], atol=1e-6)
    assert "10 clusters" in made._repr_html_() and (tmp_path / "run/report.html").exists()
    same = conr.load(tmp_path / "run")
    assert same.takes == "features" and (same.predict(x) == made.labels_).all()
    assert (pickle.loads(pickle.dumps(same)).predict(x[:9]) == made.labels_[:9]).all()
    columns = same.assign(x[:20])
    assert np.allclose(columns["boundary"], made.boundary_[:20], atol=1e-4)
    assert "path" not in columns
    assert conr.DeepCluster("auto", clusters_high=15, **PLAIN).fit(x).n_clusters_ > 1
    for given, kept in ((None, 1), (0, 0), (7, 7)):
        seeded = conr.DeepCluster(4, seed=given, **PLAIN).fit(x)
        assert f"seed: {kept}\n" in (seeded.run_ / "options.yaml").read_text()


def test_features_of_images(features, images, folder):
    x = features[0][:len(images)]
    with_array = conr.DeepCluster(5, **PLAIN).fit(x, images=images[:len(x)])
    assert with_array.paths_[3].endswith("#3")
    assert "data:image/webp" in (with_array.run_ / "report.html").read_text()
    files = sorted(folder.glob("**/*.png"))[:30]
    np.save(folder.parent / "f.npy", x[:30])
    listed = conr.DeepCluster(5, **PLAIN).fit(folder.parent / "f.npy", images=files)
    assert listed.paths_ == [str(f) for f in files]
    with pytest.raises(conr.InvalidError, match="29 rows for 30 images"):
        conr.DeepCluster(5, **PLAIN).fit(x[:29], images=files)


def test_what_only_a_training_has_is_refused(features):
    x = features[0]
    for bad in (dict(budget="1m"), dict(recipe="cifar10"), dict(epochs=3), dict(size=32)):
        with pytest.raises(conr.InvalidError, match="is for a training"):
            conr.DeepCluster(5, **bad, **PLAIN).fit(x)
    with pytest.raises(conr.InvalidError, match="no such method"):
        conr.DeepCluster(5, **dict(PLAIN, method="spectral")).fit(x)
    with pytest.raises(conr.InvalidError, match="is for features"):
        conr.DeepCluster(5, **PLAIN).fit("photos/")
    with pytest.raises(conr.NumberError, match="row 2"):
        conr.DeepCluster(5, **PLAIN).fit(np.where(np.arange(len(x))[:, None] == 2, np.nan, x))


def test_an_encoder(images, folder):
    seen = []

    def encoder(pixels):
        seen.append(pixels.shape)
        assert pixels.dtype == np.float32 and 0 <= pixels.min() and pixels.max() <= 1
        return pixels.mean(axis=3).reshape(len(pixels), -1)

    made = conr.DeepCluster(4, encoder=encoder, size=8, **PLAIN).fit(images[:100])
    assert seen == [(64, 8, 8, 3), (36, 8, 8, 3)] and made.embedding_.shape == (100, 64)
    assert (made.predict(images[:10]) == made.labels_[:10]).all()
    assert len(conr.DeepCluster(4, encoder=encoder, size=8, **PLAIN).fit(folder).labels_) == len(
        list(folder.glob("**/*.png")))
    with pytest.raises(conr.InvalidError, match="gave 3 rows for 64 images"):
        conr.DeepCluster(4, encoder=lambda p: np.ones((3, 4)), size=8, **PLAIN).fit(images)
    with pytest.raises(conr.InvalidError, match="cannot be called"):
        conr.DeepCluster(4, encoder=7, size=8, **PLAIN).fit(images)

    class Session:  # onnxruntime's, as far as it is used
        def get_inputs(self):
            return [type("Input", (), {"name": "x"})]

        def run(self, outputs, feeds):
            assert feeds["x"].shape[1:] == (3, 8, 8) and feeds["x"].min() < -1
            return [feeds["x"]]

    assert conr.DeepCluster(4, encoder=Session(), size=8, **PLAIN).fit(images).embedding_.shape == (
        len(images), 3)


def tensors_of(title):
    """Random weights of a small network under somebody's names."""
    rng, listed = np.random.default_rng(3), json.loads((ROOT / "golden/vit.json").read_text())
    (shapes,) = [m["tensors"] for m in listed["models"] if m["title"] == title]
    return {name: (mean + scale * rng.uniform(-1, 1, shape)).astype(np.float32)
            for name, shape, scale, mean in shapes}


def test_a_file_of_weights(images, folder, features, tmp_path):
    file = tmp_path / "dino.safetensors"
    write_safetensors(file, tensors_of("Hugging Face, DINOv2"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", conr.TrainingWarning)  # random weights look untrained
        made = conr.DeepCluster(4, encoder=file, out=tmp_path / "run", **PLAIN).fit(folder)
        small = conr.DeepCluster(4, encoder=str(file), size=28, **PLAIN).fit(images[:40])
    assert made.model_.takes == "encoder" and len(made.labels_) == 48
    assert (made.predict(folder) == made.labels_).all()
    assert np.allclose(conr.load(tmp_path / "run").embed(folder), made.embedding_, atol=1e-5)
    assert f'encoder: "{file}"' in (tmp_path / "run/options.yaml").read_text()
    assert "size=28" in (small.run_ / "options.yaml").read_text()
    with pytest.raises(conr.InvalidError, match="given with features"):
        conr.DeepCluster(4, encoder=file, **PLAIN).fit(features[0])
    with pytest.raises(conr.InvalidError, match="is for a training"):
        conr.DeepCluster(4, encoder=file, epochs=3, **PLAIN).fit(folder)
    with pytest.raises(conr.FileError, match="missing.safetensors"):
        conr.DeepCluster(4, encoder=tmp_path / "missing.safetensors", **PLAIN).fit(folder)


def test_a_short_training_that_loses_to_the_descriptor(tmp_path):
    rng, y, x = np.random.default_rng(5), *np.mgrid[:24, :24]
    kind = np.repeat(np.arange(3), 40)  # stripes in three directions, and a network that stays
    wave = [1.2 * (x * np.cos(k * np.pi / 3) + y * np.sin(k * np.pi / 3)) for k in kind]
    stripes = np.array([110 + rng.integers(-25, 26, (24, 24)) + 30 * np.sin(7 * rng.random() + w)
                        for w in wave]).astype(np.uint8)
    still = dict(budget="1s", lr=0, progress=False, threads=1)
    with pytest.warns(conr.TrainingWarning, match="The clusters are the built-in descriptor's"):
        made = conr.DeepCluster(3, out=tmp_path / "run", **still).fit(stripes)
    assert conr.metrics.acc(kind, made.labels_) == 1 and made.model_.takes == "hog"
    assert made.baseline_["training"]["confirmed"] < made.baseline_["descriptor"]["confirmed"]
    assert made.result_["method"] in ("kmeans", "graph") and any("note" in r for r in made.log_)
    assert (made.predict(stripes) == made.labels_).all()
    assert len(conr.load(tmp_path / "run/training").predict(stripes)) == 120
    alone = conr.DeepCluster(3, baseline=False, **still).fit(stripes)
    assert not hasattr(alone.model_, "takes") and alone.baseline_ == {}
    (tmp_path / "taken/training").mkdir(parents=True)
    with pytest.raises(conr.InvalidError, match="may have to move there"):
        conr.DeepCluster(3, out=tmp_path / "taken", **still).fit(stripes)


def test_a_torch_module(images):
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), torch.nn.BatchNorm2d(6))
    made = conr.DeepCluster(4, encoder=net, size=8, **PLAIN).fit(images)
    assert made.embedding_.shape == (len(images), 6) and not net.training


def test_a_head(features, tmp_path):
    x = features[0]
    head = built(lambda: conr.refine(x, 10, epochs=2, threads=1))
    refined = head(x)
    assert refined.shape == (len(x), head.width)
    assert np.allclose(np.linalg.norm(refined, axis=1), 1, atol=1e-4)
    head.save(tmp_path / "head.safetensors")
    assert (conr.Head.load(tmp_path / "head.safetensors")(x) == refined).all()


def test_graph_clustering(features):
    x, labels = features
    graph = built(lambda: conr.GraphClustering(10).fit(x))
    assert conr.metrics.nmi(labels, graph.labels_) > 0.9
    assert (graph.predict(x) == graph.labels_).mean() > 0.95
    assert graph.get_params()["k1"] is None


def test_graph_clustering_is_an_estimator(features):
    pytest.importorskip("sklearn", minversion="1.2")
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    built(lambda: conr.GraphClustering(3).fit(features[0]))
    checks.check_estimator(conr.GraphClustering())
