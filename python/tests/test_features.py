"""Neighborhoods, boundaries and scores, against golden values of NumPy and scikit-learn."""
import numpy as np
import pytest
from conftest import ROOT

import conr
from conr import metrics
from conr._arrays import as_numpy, matrix


def golden(name):
    return conr.read_safetensors(ROOT / "golden" / f"{name}.safetensors")[0]


def test_neighbors_are_the_golden_ones(features):
    x, labels = features
    ids = conr.neighbors(x)
    assert ids.shape == (300, 10) and ids.dtype == np.int32
    assert (ids[:, 0] == np.arange(300)).all()
    plain = conr.neighbors(x, k=6, local=True)
    expected = np.argsort(-(x @ x.T), axis=1, kind="stable")[:, :6]
    assert (plain == expected).mean() > 0.999  # but for ties
    # those of the same class are more among contextual neighbors than among plain ones
    assert metrics.purity(ids, labels)[-1] >= metrics.purity(
        conr.neighbors(x, local=True), labels)[-1]
    assert conr.neighbors(x[:4], k=10).shape == (4, 4)


def test_recall():
    rng = np.random.default_rng(1)
    x = np.repeat(rng.standard_normal((300, 16)), 20, 0) + rng.standard_normal((6000, 16)) / 2
    exact = conr.neighbors(x, local=True)
    assert (conr.neighbors(x, local=True, recall=1) == exact).all()
    some = conr.neighbors(x, local=True, recall=0.9)
    found = np.mean([len(set(a) & set(b)) for a, b in zip(exact[:, 1:], some[:, 1:])]) / 9
    assert 0.9 <= found < 1, found
    for wrong in (0, -1, 1.5, float("nan")):
        with pytest.raises(conr.InvalidError, match="recall"):
            conr.neighbors(x, recall=wrong)


def test_options_reach_the_library(features):
    x, _ = features
    base = conr.neighbors(x, k=10)
    for change in (dict(k1=4), dict(k2=5), dict(layers=1), dict(alpha=0.5, k2=4),
                   dict(resymmetrize=False, k2=4), dict(local=True)):
        assert (conr.neighbors(x, **change) != base).any(), change


def test_arrays_without_a_copy(features):
    x, _ = features
    assert matrix(x) is x
    assert np.shares_memory(matrix(memoryview(x)), x)

    if not hasattr(np, "from_dlpack"):
        pytest.skip("NumPy before 1.22")

    class Foreign:  # speaks DLPack alone, as other packages' arrays do
        def __dlpack__(self, **how):
            return x.__dlpack__(**how)

        def __dlpack_device__(self):
            return x.__dlpack_device__()

    assert np.shares_memory(matrix(Foreign()), x)
    for other in (x.astype(np.float64), np.asfortranarray(x), x.tolist(), Foreign()):
        assert (conr.neighbors(other) == conr.neighbors(x)).all()
    x16 = x.astype(np.float16)
    assert conr.neighbors(x16).shape == (300, 10)
    with pytest.raises(conr.InvalidError, match="complex"):
        conr.neighbors(x.astype(complex))


def test_tensors_without_a_copy(features):
    torch = pytest.importorskip("torch")
    x, _ = features
    t = torch.from_numpy(x.copy()).requires_grad_()
    assert as_numpy(t).ctypes.data == t.data_ptr()
    ids = conr.neighbors(t)
    assert ids.dtype == torch.int64 and t[ids].shape == (300, 10, 32)
    assert (ids.numpy() == conr.neighbors(x)).all()
    assert (conr.neighbors(t.double()) == ids).all()
    km = conr.KMeans(4).fit(t)
    ratio = conr.boundary(t, torch.from_numpy(km.cluster_centers_))
    assert conr.boundary_keep(ratio, 0.5).sum() == 150
    assert conr.neighbors(t.bfloat16()).shape == (300, 10)


def test_boundary_by_hand():
    centroids = np.array([[1, 0], [0, 1]], np.float32)
    x = np.array([[1, 0], [1, 1], [0, 1]], np.float32)
    near, far = 0.0, np.sqrt(2)
    assert np.allclose(conr.boundary(x, centroids, [0, 0, 0]), [near, 1, 2], atol=1e-6)
    assert np.allclose(conr.boundary(x, centroids), [0, 1, 0], atol=1e-6)
    assert np.allclose(conr.assign(x, centroids, metric="euclidean").distances, [0, 1, 0])
    assert far > 1
    kept = conr.boundary_keep(np.array([0.3, 0.1, 0.2, 0.9], np.float32), 0.5)
    assert kept.tolist() == [False, True, True, False] and kept.dtype == bool
    assert conr.boundary_fraction(25) == pytest.approx(0.9)
    with pytest.raises(conr.InvalidError):
        conr.boundary(x, centroids, [0, 0, 7])
    with pytest.raises(conr.InvalidError, match="rows of equal length"):
        conr.boundary(x, np.ones((2, 3)))


def test_scores_are_scikit_learns():
    g = golden("metrics")
    ends = np.cumsum(g["labels.n"])
    for case in range(0, 150, 7):
        part = slice(ends[case] - g["labels.n"][case], ends[case])
        t, p = g["labels.truth"][part], g["labels.pred"][part]
        if (t == -1).any():
            continue
        expected = g["labels.scores"][case].astype(np.float64).sum(1)  # two floats each
        s = metrics.scores(t, p)
        assert np.allclose([s["nmi"], s["acc"], s["ari"]], expected, atol=1e-9)
        assert metrics.nmi(t, p) == s["nmi"] and metrics.acc(t, p) == s["acc"]
        assert metrics.ari(t, p) == s["ari"]


def test_confusion_takes_names_and_leaves_out_the_unlabeled():
    c = metrics.confusion(["cat", "dog", "dog", "eel"], [5, 7, 7, 5])
    assert c.classes.tolist() == ["cat", "dog", "eel"] and c.clusters.tolist() == [5, 7]
    assert c.counts.tolist() == [[1, 0, 1], [0, 2, 0]] and c.purity.tolist() == [0.5, 1]
    assert c.match[1] == 1
    s = metrics.scores([0, 0, 1, -1], [1, 1, 0, 0])
    assert s["acc"] == 1 and s["n"] == 3 and s["unlabeled"] == 1
    assert metrics.balanced_acc([0, 0, 0, 1], [0, 0, 0, 0]) == 0.5
    with pytest.raises(conr.InvalidError, match="as many of both"):
        metrics.nmi([1, 2], [1])


def test_scores_of_features(features):
    x, labels = features
    assert metrics.silhouette(x, labels) > 0.2
    assert metrics.silhouette(x, [f"class {i}" for i in labels]) == metrics.silhouette(x, labels)
    assert metrics.knn(x, labels) > 0.9
    assert metrics.knn(x[:200], labels[:200], x[200:], labels[200:]) > 0.9
    assert conr.choose_clusters(x, 2, 20) in range(5, 16)
    with pytest.raises(conr.InvalidError):
        metrics.silhouette(x, labels, metric="taxi")
