"""DeepCluster and Model: fitting, using, saving, weights both ways."""
import json
import pickle

import numpy as np
import pytest
from conftest import TINY

import conr
from conr.deep import seconds


def test_a_fitted_model(fitted, images):
    n = len(images)
    assert fitted.labels_.shape == (n,) and fitted.embedding_.shape == (n, 16)
    assert np.allclose(np.linalg.norm(fitted.embedding_, axis=1), 1, atol=1e-5)
    assert (fitted.predict(images) == fitted.labels_).all()
    assert (fitted.embed(images) == fitted.embedding_).all()
    assert (fitted.transform(images[:7]) == fitted.embedding_[:7]).all()
    assert fitted.cluster_centers_.shape == (10, 16) and fitted.scores_ == {}
    assert fitted.baseline_["images"] > 0
    assert 0 <= fitted.baseline_["descriptor"]["agreement"] <= 1
    assert fitted.result_["epochs"] == 4 and fitted.paths_[3].endswith("#3")
    assert "loss" in fitted.log_[0] and "silhouette" in [line for line in fitted.log_
                                                             if "objective" in line][-1]
    assert json.dumps(fitted.log_)
    assert {"key": "encoder", "value": "small", "why": "as given"} in fitted.chosen_
    assert [c for c in fitted.chosen_ if c["key"] == "average" and c["why"] == "a short run"]
    columns = fitted.model_.assign(images[:20])
    assert (columns["cluster"] == fitted.labels_[:20]).all()
    assert np.allclose(columns["boundary"], fitted.boundary_[:20], atol=1e-4)


def test_the_same_seed_gives_the_same_bits(fitted, images, tmp_path):
    again = conr.DeepCluster(10, progress=False, **dict(TINY, threads=2)).fit(images)
    assert (again.embedding_ == fitted.embedding_).all()
    other = conr.DeepCluster(10, progress=False, seed=2, **TINY).fit(images)
    assert (other.embedding_ != fitted.embedding_).any()


def test_save_and_load(fitted, images, tmp_path):
    folder = fitted.save(tmp_path / "kept")
    model = conr.load(folder)
    assert (model(images[:9]) == fitted.embedding_[:9]).all()
    assert (model.predict(images[:9]) == fitted.labels_[:9]).all()
    assert model.size == 16 and model.encoder == "small" and model.notes()["stem"] == "small"
    assert (model.centroids == fitted.cluster_centers_).all()
    alone = conr.load(folder / "model.safetensors")
    assert alone.centroids is None
    with pytest.raises(conr.FileError, match="no centroids"):
        alone.predict(images)
    with pytest.raises(conr.FileError, match="not empty"):
        fitted.save(folder)
    assert len(conr.read_log(folder)) == len(fitted.log_)
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.predict(images[:9]) == fitted.labels_[:9]).all()


def test_weights_go_both_ways(fitted, images, tmp_path):
    model = fitted.model_
    weights = model.state_dict("encoder", torch=False)
    assert "conv1.weight" in weights and weights["layer1.0.bn1.running_mean"].dtype == np.float32
    assert any(name.startswith("projector.") for name in model.state_dict(torch=False))
    still = conr.DeepCluster(10, init=weights, progress=False,
                             **dict(TINY, epochs=1, stage1_epochs=1, lr=0, decay=0))
    back = still.fit(images).model_.state_dict("encoder", torch=False)
    assert all((back[k] == weights[k]).all() for k in weights
               if k.endswith(("conv1.weight", "bn1.weight")))


def test_folders_and_lists(folder, images, tmp_path):
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nno")
    with pytest.warns(conr.TrainingWarning, match="1 of 49 images"):
        model = conr.DeepCluster(4, progress=False, **dict(TINY, epochs=2)).fit(str(folder))
    assert len(model.labels_) == 48 and model.paths_[0].endswith("000.png")
    some = sorted(folder.glob("0*.png"))[:10]
    assert (model.predict(some) == model.labels_[:10]).all()
    page = model._repr_html_()
    assert page.count("<img") == sum(min(8, (model.labels_ == k).sum()) for k in range(4))
    (folder / "broken.png").unlink()


def test_html(fitted, images, tmp_path):
    page = fitted._repr_html_()
    assert page.count("data:image/png;base64,") > 10 and len(page) < 200_000
    assert "256 images in 10 clusters" in page
    report = fitted.report(tmp_path / "report.html").read_text()
    assert report.lower().startswith("<!doctype html>") and "data:image" in report
    assert "DeepCluster(7" in conr.DeepCluster(7)._repr_html_()


def test_parameters(images):
    d = conr.DeepCluster(10, budget="10m", epochs=5)
    assert d.get_params()["epochs"] == 5 and repr(d) == "DeepCluster(10, budget='10m', epochs=5)"
    assert d.set_params(epochs=6, budget=None).settings == {"epochs": 6} and d.budget is None
    assert [seconds(b) for b in (None, 90, "90s", "10m", "1.5h")] == [0, 90, 90, 600, 5400]
    with pytest.raises(conr.InvalidError, match="not a time"):
        seconds("soon")
    with pytest.raises(conr.InvalidError, match="colour: no such setting"):
        conr.DeepCluster(10, colour=3)
    with pytest.raises(conr.InvalidError, match="epochs"):
        conr.DeepCluster(10, epochs=-1, progress=False).fit(images)
    with pytest.raises(conr.InvalidError, match="more than the 256 images"):
        conr.DeepCluster(1000, progress=False).fit(images)
    with pytest.raises(conr.InvalidError, match="too few"):
        conr.DeepCluster(3, progress=False).fit(images[:5])
    with pytest.raises(conr.InvalidError, match="uint8"):
        conr.DeepCluster(3, progress=False).fit(images / 255)
    with pytest.raises(conr.InvalidError, match="not fitted"):
        d.predict(images)
    assert "cifar10" in conr.recipes()
    assert {s["key"] for s in conr.settings()} > {"k1", "fr0", "lr"}
    clone = pytest.importorskip("sklearn.base").clone
    assert clone(d).get_params() == d.get_params()


def test_a_recipe_by_name_and_progress(images, capsys):
    told = []
    d = conr.DeepCluster("auto", recipe="demo", progress=told.append,
                         **dict(TINY, clusters_high=6))
    assert d.fit(images).n_clusters_ in range(2, 7) and d.chosen_ == []
    steps = [p for p in told if p.epoch]
    assert steps[-1].done == steps[-1].total and steps[-1].loss != 0
    assert any(p.message and "K estimated" in p.message for p in told)
    conr.DeepCluster(4, progress=True, **dict(TINY, epochs=1, stage1_epochs=1)).fit(images)
    assert "clusters of" in capsys.readouterr().err


def test_features_agree_with_torchvision():
    torch = pytest.importorskip("torch")
    torchvision = pytest.importorskip("torchvision")
    rng = np.random.default_rng(3)
    colors = rng.integers(0, 200, (32, 1, 1, 3)) + rng.integers(0, 56, (32, 16, 16, 3))
    colors = colors.astype(np.uint8)
    block = torchvision.models.resnet.BasicBlock
    net = torchvision.models.ResNet(block, [2, 2, 2, 2])  # its stages once more, narrow: seconds
    net.conv1, net.bn1 = torch.nn.Conv2d(3, 8, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(8)
    net.inplanes = 8
    for i in range(4):
        setattr(net, f"layer{i + 1}", net._make_layer(block, 8 << i, 2, stride=2 if i else 1))
    net.maxpool, net.fc = torch.nn.Identity(), torch.nn.Identity()
    model = conr.DeepCluster(2, recipe="cifar10", init=net.state_dict(), progress=False, size=16,
                             width=8, lr=0.001, hidden=32, predictor_hidden=32, features=16,
                             batch=16, epochs=12, stage1_epochs=12, eval_every=0,
                             warmup_epochs=0, restarts=1, threads=1).fit(colors).model_
    net.load_state_dict(model.state_dict("encoder"))
    head = model.state_dict("projector")
    net.eval()
    mean, deviation = ([float(v) for v in model.notes()[key].split()]
                       for key in ("mean", "deviation"))
    x = (torch.from_numpy(colors).float() / 255 - torch.tensor(mean)) / torch.tensor(deviation)
    with torch.no_grad():
        z = net(x.permute(0, 3, 1, 2))
        z = z @ head["0.weight"].T + head["0.bias"]
        z = torch.nn.functional.batch_norm(z, head["1.running_mean"], head["1.running_var"],
                                           head["1.weight"], head["1.bias"]).relu()
        z = torch.nn.functional.normalize(z @ head["3.weight"].T + head["3.bias"], dim=1)
    ours = model.embed(colors)
    error, spread = np.abs(z.numpy() - ours).max(), ours.std(0).mean()
    assert error < 1e-3 * spread, (error, spread)  # images differ, or agreeing would mean nothing
