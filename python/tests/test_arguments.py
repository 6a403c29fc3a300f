"""Every argument reaches the library, and what is given by the user wins over what is chosen."""
import json
import math

import numpy as np
import pytest
from conftest import TINY

import conr
from conr import metrics
from conr._settings import Settings, seconds


def filled(*args, **kwargs):
    """The settings of a DeepCluster before anything is chosen."""
    with Settings() as s:
        conr.DeepCluster(*args, **kwargs)._fill(s)
        return {key: s.get(key) for key in ("k1", "batch", "seed", "clusters", "preset", "compact",
                                            "resymmetrize", "restarts")}


def test_settings_win_over_the_preset():
    # batch and restarts are set by the preset, and stand before it in the alphabet and after it
    s = filled(7, preset="released", k1=5, batch=64, restarts=3)
    assert s["preset"] == "released" and s["k1"] == "5"
    assert s["batch"] == "64" and s["restarts"] == "3"
    assert filled(7, preset="released")["batch"] == "512"


def test_values_become_settings():
    assert filled("auto")["clusters"] == "0" and filled(7)["clusters"] == "7"
    assert filled(7)["seed"] == "1" and filled(7, seed=0)["seed"] == "0"
    assert filled(7, compact=True, resymmetrize=np.bool_(False)) == {
        **filled(7), "compact": "true", "resymmetrize": "false"}
    assert filled(7, batch=np.int64(32))["batch"] == "32"


def test_what_is_given_is_not_chosen(fitted):
    given = {c["key"] for c in fitted.chosen_ if c["why"] == "as given"}
    assert given == {c["key"] for c in fitted.chosen_} & set(TINY)
    options = (fitted.run_ / "options.yaml").read_text()
    for key in ("width", "hidden", "batch", "epochs"):
        assert f"\n{key}: {TINY[key]}\n" in options


def test_times():
    assert [seconds(t) for t in (None, 90, "90", "90s", "10m", "2h", "1d", "1.5h")] == [
        0, 90, 90, 90, 600, 7200, 86400, 5400]
    for bad in ("soon", "-1s", "0", "10 m s", "1e3"):
        with pytest.raises(conr.InvalidError, match="not a time"):
            seconds(bad)


def test_an_empty_folder_is_saved_to(fitted, tmp_path):
    (tmp_path / "empty").mkdir()
    assert (fitted.save(tmp_path / "empty") / "DONE").exists()


def test_a_log_cut_short(tmp_path):
    lines = [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 2.25}]
    text = "\n".join(json.dumps(line) for line in lines)
    (tmp_path / "log.jsonl").write_text(text + '\n{"step": 3, "lo')
    assert conr.read_log(tmp_path) == lines


def test_boundaries_of_scaled_centroids(features):
    x, labels = features
    centers = np.stack([x[labels == k].mean(axis=0) for k in range(10)])
    unit = centers / np.linalg.norm(centers, axis=1, keepdims=True)
    plain = conr.boundary(x, centers, labels)
    scaled = conr.boundary(x, centers, labels, normalize_centroids=True)
    assert not np.allclose(plain, scaled, atol=1e-3)
    assert np.allclose(scaled, conr.boundary(x, unit, labels), atol=1e-5)


def test_each_option_of_neighbors(features):
    x, _ = features
    for name, a, b in (("resymmetrize", True, False), ("alpha", 2.0, 0.5), ("layers", 1, 3),
                       ("k1", 5, 15), ("k2", 2, 6)):
        common = {"k1": 10, "k2": 4, "layers": 2}
        one = conr.neighbors(x, **{**common, name: a})
        two = conr.neighbors(x, **{**common, name: b})
        assert (one != two).any(), name


def test_the_temperature_of_votes():
    """Two near rows of one class against one still nearer of the other: a high temperature lets the
    many win, a low one the nearest."""
    angles = [0.0, 0.1, 0.3, 0.32]
    x = np.array([[math.cos(a), math.sin(a)] for a in angles], np.float32)
    known, query = [0, 1, 1], x[:1]
    assert metrics.knn(x[1:], known, query, [0], k=3, temperature=0.01) == 1
    assert metrics.knn(x[1:], known, query, [1], k=3, temperature=10) == 1


def test_k_means_takes_its_limits(features):
    x, _ = features
    few = conr.KMeans(10, n_init=1, max_iter=1).fit(x)
    assert max(step["iteration"] for step in few.history_) == 1
    assert max(step["iteration"] for step in conr.KMeans(10, n_init=1).fit(x).history_) > 1
    loose = conr.KMeans(10, n_init=1, tol=1e9).fit(x)
    assert len(loose.history_) <= 2
    runs = {step["run"] for step in conr.KMeans(10, n_init=5).fit(x).history_}
    assert len(runs) >= 5
    other = conr.KMeans(10, n_init=1, random_state=3).fit(x)
    assert other.inertia_ != few.inertia_


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_the_score_is_minus_the_inertia(features, metric):
    x, _ = features
    k = conr.KMeans(10, metric=metric, n_init=2).fit(3 * x + 1)
    assert math.isclose(k.score(3 * x + 1), -k.inertia_, rel_tol=1e-5)
