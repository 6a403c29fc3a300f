"""ConAffLoss against the definition in plain torch, value and gradient; the example."""
import subprocess
import sys

import pytest
from conftest import ROOT, subprocess_environment

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import conr  # noqa: E402
from conr.torch import ConAffLoss  # noqa: E402


def plain_neighbors(t, k, k1, k2):
    """The neighborhood as METHOD has it, dense, in double."""
    s = F.normalize(t.double(), dim=1)
    s = s @ s.T
    n = len(s)
    ranked = (s + 10 * torch.eye(n)).argsort(1, descending=True)  # the row itself first
    r = torch.zeros(n, n, dtype=torch.double).scatter_(1, ranked[:, :k1], 1.0)
    h = (r + r.T) / 2
    w = torch.zeros_like(h).scatter_(1, ranked[:, :k2], 1.0) * s.clamp(min=0) ** 2
    for layer in range(2):
        if layer:
            h = h + h.T
        h = F.normalize(w @ h, dim=1)
    return (h @ h.T + 10 * torch.eye(n)).argsort(1, descending=True)[:, :k]


def plain_loss(q, t, ids, kept):
    total = 0
    for i in range(len(q)):
        if kept[i]:
            total = total + F.cosine_similarity(q[i:i + 1], t[ids[i]]).mean()
    return -total / kept.sum()


@pytest.fixture
def batch(features):
    x, labels = features
    t = torch.from_numpy(x[:96] * 3)  # not of unit length
    torch.manual_seed(5)
    q = t + 0.3 * torch.randn(96, 32)
    km = conr.KMeans(10).fit(x)
    return q, t, torch.from_numpy(km.labels_[:96]), torch.from_numpy(km.cluster_centers_)


def test_value_and_gradient_are_those_of_plain_autograd(batch):
    q, t, labels, centroids = batch
    loss = ConAffLoss(k=8, k1=10, k2=3)
    ids, kept = loss.select(t, labels, centroids, 0.75)
    # as sets: neighbors of equal similarity may swap
    ours, plain = ids.sort(1)[0], plain_neighbors(t, 8, 10, 3).sort(1)[0]
    assert (ours == plain).float().mean() > 0.98
    unit = F.normalize(t, dim=1)
    away = torch.cdist(unit, centroids)
    own = away.gather(1, labels.long()[:, None])[:, 0]
    other = away.scatter(1, labels.long()[:, None], 9.0).min(1)[0]
    ratio = 1 - (other - own) / torch.maximum(own, other)
    assert (kept == (ratio <= ratio.sort()[0][71])).all() and kept.sum() == 72

    a, b = q.clone().requires_grad_(), q.clone().requires_grad_()
    target = t.clone().requires_grad_()
    value, expected = loss(a, target, labels, centroids, 0.75), plain_loss(b, t, ids, kept)
    value.backward()
    expected.backward()
    assert abs(value.item() - expected.item()) < 1e-6
    assert (a.grad - b.grad).abs().max() < 1e-7
    assert target.grad is None
    assert (a.grad[~kept] == 0).all()
    everything = torch.ones(96, dtype=torch.bool)
    assert abs(loss(q, t).item() - plain_loss(q, t, ids, everything).item()) < 1e-6
    by_batch = ConAffLoss(k=8, k1=10, k2=3, mean="batch")(q, t, labels, centroids, 0.75)
    assert abs(by_batch.item() - value.item() * 72 / 96) < 1e-6


def test_gradient_by_finite_differences(batch):
    q, t, labels, centroids = batch
    loss = ConAffLoss(k=4)
    q = q[:12].double().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda p: loss(p, t[:12].double(), labels[:12], centroids, 0.8), (q,))


def test_refusals(batch):
    q, t, labels, _ = batch
    with pytest.raises(ValueError, match="shape"):
        ConAffLoss()(q[:5], t)
    with pytest.raises(ValueError, match="both"):
        ConAffLoss()(q, t, labels, None, 0.5)
    with pytest.raises(conr.NumberError):
        ConAffLoss()(q, t * float("nan"))
    assert "k1=10" in repr(ConAffLoss())


def test_the_example_runs():
    example = ROOT / "python/examples/simsiam_conr.py"
    assert len(example.read_text().splitlines()) < 120
    out = subprocess.run([sys.executable, example, "--images", "128", "--batch", "64", "--epochs",
                          "2", "--stage1-epochs", "1", "--clusters", "5"], check=True, text=True,
                         capture_output=True, env=subprocess_environment()).stdout
    assert "epoch 1 stage 1" in out and "epoch 2 stage 2" in out and "NMI 0." in out
