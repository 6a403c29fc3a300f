"""KMeans: scikit-learn's manners, with scikit-learn and without."""
import pickle
import subprocess
import sys

import numpy as np
import pytest
from conftest import subprocess_environment

import conr


def test_fit_predict_transform(features):
    x, labels = features
    km = conr.KMeans(10)
    found = km.fit_predict(x)
    assert conr.metrics.nmi(labels, found) > 0.9
    assert found is km.labels_ and (km.predict(x) == found).all()
    assert (km.transform(x).argmin(1) == found).all() and km.transform(x).dtype == np.float32
    assert km.score(x) == pytest.approx(-km.inertia_, rel=1e-5)
    assert km.history_[0]["iteration"] == 1 and {"objective", "moved"} <= set(km.history_[0])
    assert (conr.KMeans(10, threads=1).fit_predict(x) == found).all()
    again = pickle.loads(pickle.dumps(km))
    assert (again.predict(x[:50]) == found[:50]).all()
    euclidean = conr.KMeans(10, metric="euclidean").fit(x)
    assert euclidean.score(x) == pytest.approx(-euclidean.inertia_, rel=1e-4)


def test_parameters():
    km = conr.KMeans(3, metric="euclidean")
    assert km.get_params()["n_clusters"] == 3 and "euclidean" in repr(km)
    assert km.set_params(n_clusters=4).n_clusters == 4
    with pytest.raises(ValueError):
        km.set_params(legs=4)
    with pytest.raises(ValueError, match="n_clusters"):
        conr.KMeans(9).fit(np.ones((4, 2)))


def test_check_estimator():
    pytest.importorskip("sklearn", minversion="1.2")
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    checks.check_estimator(conr.KMeans())


def test_without_scikit_learn():
    script = """
import sys
sys.modules["sklearn"] = None
sys.modules["torch"] = None
import conr, numpy as np
x = np.random.default_rng(0).standard_normal((60, 5))
km = conr.KMeans(4).fit(x)
assert (km.predict(x) == km.labels_).all() and repr(km) == "KMeans(n_clusters=4)"
assert km.get_params()["max_iter"] == 300 and km.set_params(tol=0.1).tol == 0.1
for wrong in (lambda: km.predict(x[:, :3]), lambda: conr.KMeans().predict(x),
              lambda: km.set_params(legs=4), lambda: conr.KMeans(2).fit(x * np.nan)):
    try:
        wrong()
    except ValueError:
        continue
    raise AssertionError("not refused")
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=subprocess_environment())
