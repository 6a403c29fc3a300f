"""CUDA tensors where they lie, against the same calls on the CPU; streams, graphs, threads.

Under pytest with the others; without pytest: CONR_LIBRARY=build-cuda/libconr.so python3 FILE
"""
import sys
import threading
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
try:
    import torch

    missing = "" if torch.cuda.is_available() else "no GPU that torch can use"
except ImportError:
    missing = "no torch"
if not missing:
    import conr
    from conr._places import Gpu, place_of
    from conr.torch import ConAffLoss

    if not isinstance(place_of(torch.zeros(1, 1, device="cuda")), Gpu):
        missing = "a library without CUDA"
if missing:
    if __name__ == "__main__":
        sys.exit(f"skipped: {missing}")
    import pytest

    pytest.skip(missing, allow_module_level=True)

LONG = 1_000_000_000  # cycles: half a second and more


def features(n=300, d=32, classes=10, seed=1):
    """Rows around centers, and the centers they belong to; on the CPU."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=g)
    centers = 2 * torch.randn(classes, d, generator=g)
    return centers[labels] + torch.randn(n, d, generator=g), labels


def raises(error, words, call):
    try:
        call()
    except error as e:
        assert words in str(e), e
    else:
        raise AssertionError(f"no {error.__name__}")


def shared(a, b):
    """The share of the neighbors of each row in `a` that are among those in `b`."""
    a, b = a.cpu(), b.cpu()
    return (a[:, :, None] == b[:, None, :]).any(2).float().mean().item()


def test_neighbors_are_those_of_the_cpu():
    for n, d, how in ((256, 64, {}), (1000, 256, {}), (9000, 64, {}), (9000, 64, {"local": True}),
                      (1000, 33, dict(k=30, k1=20, k2=5)), (300, 8, dict(layers=1, alpha=0.5)),
                      (5, 3, {})):
        x, _ = features(n, d)
        before = x.clone()
        there = x.cuda()
        ids = conr.neighbors(there, **how)
        assert ids.is_cuda and ids.dtype == torch.int64
        assert ids.shape == (n, min(n, how.get("k", 10)))
        assert (ids[:, 0].cpu() == torch.arange(n)).all()
        assert (there.cpu() == before).all()
        share = shared(ids, conr.neighbors(x, **how))
        assert share > 0.995, (n, d, how, share)  # S is rounded otherwise: near ties may swap


def test_types_and_orders():
    x = features(200, 48)[0].cuda()
    for other in (x.half(), x.bfloat16(), x.double(), x.t().contiguous().t(), x[:, ::3], x[::2],
                  x.clone().requires_grad_(), (x * 10).int()):
        want = conr.neighbors(other.detach().float().contiguous())
        assert (conr.neighbors(other) == want).all(), other.dtype

    class Foreign:  # speaks DLPack alone
        def __dlpack__(self, **how):
            return x.__dlpack__(**how)

        def __dlpack_device__(self):
            return x.__dlpack_device__()

    assert (conr.neighbors(Foreign()) == conr.neighbors(x)).all()
    assert conr.neighbors(Foreign()).is_cuda
    raises(conr.InvalidError, "complex", lambda: conr.neighbors(x.to(torch.complex64)))
    raises(conr.InvalidError, "shape", lambda: conr.neighbors(x[0]))
    raises(conr.InvalidError, "at least one row", lambda: conr.neighbors(x[:0]))
    raises(conr.InvalidError, "at least 1", lambda: conr.neighbors(x, k=0))


def test_boundary_is_that_of_the_cpu():
    x, labels = features(500, 20)
    centers = torch.stack([x[labels == c].mean(0) for c in range(10)])
    for how in ({}, {"metric": "euclidean"}, {"normalize_centroids": True}):
        want = conr.boundary(x, centers, labels, **how)
        for c in (centers, centers.cuda(), centers.numpy()):
            for own in (labels, labels.cuda(), labels.numpy(), labels.int().cuda()):
                ratio = conr.boundary(x.cuda(), c, own, **how)
                assert ratio.is_cuda and ratio.dtype == torch.float32
                assert (ratio.cpu() - want).abs().max() < 1e-5
        nearest = conr.boundary(x.cuda(), centers, **how).cpu()
        assert (nearest - conr.boundary(x, centers, **how)).abs().max() < 1e-5
    assert (conr.boundary(x.cuda(), centers[:1], labels * 0) == 0).all()
    nan = conr.boundary(x.cuda(), centers, labels + 5).isnan().cpu()
    assert (nan == (labels > 4)).all()
    raises(conr.InvalidError, "rows of equal length",
           lambda: conr.boundary(x.cuda(), centers[:, :3]))


def test_keep_is_that_of_the_cpu():
    for n in (1, 5, 300, 5000):
        ratio = torch.rand(n, generator=torch.Generator().manual_seed(n)) * 2
        for r in (ratio, (ratio * 5).round() / 5):  # the second: mostly ties
            for fraction in (0, 0.3, 0.6, 0.75, 1):
                kept = conr.boundary_keep(r.cuda(), fraction)
                assert kept.is_cuda and kept.dtype == torch.bool
                assert (kept.cpu() == conr.boundary_keep(r, fraction)).all()
    raises(conr.InvalidError, "fraction", lambda: conr.boundary_keep(ratio.cuda(), 1.5))


def test_clusters_are_those_of_the_cpu():
    x, _ = features(3000, 24, 6)
    for metric in ("cosine", "euclidean"):
        here = conr.KMeans(6, metric=metric).fit(x)
        there = conr.KMeans(6, metric=metric).fit(x.cuda())
        assert abs(there.inertia_ / here.inertia_ - 1) < 1e-3
        assert there.cluster_centers_.is_cuda and there.cluster_centers_.shape == (6, 24)
        assert there.labels_.is_cuda and there.labels_.dtype == torch.int64
        assert there.n_features_in_ == 24 and there.history_ and there.n_iter_ > 0
        assert (there.predict(x.cuda()) == there.labels_).all()
        assert (there.predict(x.numpy()) == there.labels_.cpu().numpy()).all()
        assert here.predict(x.cuda()).is_cuda
        assert conr.metrics.nmi(here.labels_, there.labels_) > 0.999
        assert abs(there.score(x.cuda()) + there.inertia_) < 1e-3 * there.inertia_
        assert there.transform(x.cuda()).shape == (3000, 6)
        assert (conr.KMeans(6, metric=metric).fit_predict(x.cuda()) == there.labels_).all()
        a = conr.assign(x.cuda(), here.cluster_centers_, metric=metric)
        b = conr.assign(x, here.cluster_centers_, metric=metric)
        assert (a.labels.cpu() == b.labels).all() and a.labels.dtype == torch.int64
        assert (a.distances.cpu() - b.distances).abs().max() < 1e-5
    bad = x.cuda()
    bad[7, 3] = float("nan")
    raises(conr.NumberError, "finite", lambda: conr.KMeans(6).fit(bad))
    raises(conr.InvalidError, "n_clusters", lambda: conr.KMeans(6).fit(x[:3].cuda()))


def test_loss_and_gradient():
    x, labels = features(96)
    t = x * 3
    q = t + 0.3 * torch.randn(96, 32, generator=torch.Generator().manual_seed(5))
    km = conr.KMeans(10).fit(x.cuda())
    own = km.labels_
    loss = ConAffLoss(k=8, k1=10, k2=3)
    ids, kept = loss.select(t.cuda(), own, km.cluster_centers_, 0.75)
    assert ids.is_cuda and kept.is_cuda and kept.sum() == 72
    here = loss.select(t, own.cpu(), km.cluster_centers_.cpu(), 0.75)
    assert shared(ids, here[0]) > 0.99 and (kept.cpu() == here[1]).all()
    a, b = q.cuda().requires_grad_(), q.clone().requires_grad_()
    value = loss(a, t.cuda(), own, km.cluster_centers_, 0.75)
    value.backward()
    cosine = torch.nn.functional.cosine_similarity(b[:, None], t[ids.cpu()], dim=2).mean(1)
    expected = -(cosine * kept.cpu()).sum() / 72
    expected.backward()
    assert abs(value.item() - expected.item()) < 2e-6
    assert (a.grad.cpu() - b.grad).abs().max() < 1e-7
    # labels and centroids of the host
    again = loss(a, t.cuda(), own.cpu(), km.cluster_centers_.cpu().numpy(), 0.75)
    assert again.item() == value.item()
    half = loss(a.half(), t.cuda().half(), own, km.cluster_centers_, 0.75)
    assert abs(half.item() - value.item()) < 0.02


def batch(x, labels, centers):
    ids = conr.neighbors(x)
    ratio = conr.boundary(x, centers, labels)
    return ids, conr.boundary_keep(ratio, 0.7)


def test_work_is_in_the_order_of_the_stream_and_nothing_waits():
    real, labels = features(1024, 64)
    real, labels = real.cuda(), labels.cuda()
    centers = real[:10].clone()
    want = batch(real, labels, centers)
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        x = torch.zeros_like(real)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            batch(x, labels, centers)  # kernels are loaded, memory is taken
            torch.cuda.synchronize()
            torch.cuda._sleep(LONG)
            x.copy_(real)
            ids, kept = batch(x, labels, centers)
            x.zero_()  # behind it
            done = torch.cuda.Event()
            done.record()
            assert not done.query(), "a call has waited for the GPU"
            stream.synchronize()
        assert (ids == want[0]).all() and (kept == want[1]).all()


def test_streams_in_turn():
    """The same context's working memory on one stream after the other, without a wait."""
    data = [features(700, 64, seed=s) for s in range(4)]
    data = [(x.cuda(), labels.cuda(), x[:10].cuda()) for x, labels in data]
    want = [batch(*d) for d in data]
    streams = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    for _ in range(10):
        found = []
        for stream, d in zip(streams, data):
            with torch.cuda.stream(stream):
                found.append(batch(*d))
        torch.cuda.synchronize()
        for a, b in zip(found, want):
            assert (a[0] == b[0]).all() and (a[1] == b[1]).all()


def test_capture_in_a_graph():
    x, labels = features(512, 64)
    x, labels = x.cuda(), labels.cuda()
    centers = x[:10].clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            batch(x, labels, centers)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ids, kept = batch(x, labels, centers)
    for seed in range(2, 6):
        other = features(512, 64, seed=seed)[0].cuda()
        want = batch(other, labels, centers)  # a plain call between replays
        x.copy_(other)
        graph.replay()
        beside = batch(other, labels, centers)
        torch.cuda.synchronize()
        assert (ids == want[0]).all() and (kept == want[1]).all()
        assert (beside[0] == want[0]).all() and (beside[1] == want[1]).all()


def test_two_threads_with_a_stream_each():
    data = [features(600, 64, seed=s) for s in range(2)]
    data = [(x.cuda(), labels.cuda(), x[:10].cuda()) for x, labels in data]
    want = [batch(*d) for d in data]
    torch.cuda.synchronize()
    wrong = []

    def work(i):
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(20):
                    ids, kept = batch(*data[i])
                    stream.synchronize()
                    if not ((ids == want[i][0]).all() and (kept == want[i][1]).all()):
                        wrong.append(i)
        except BaseException as e:  # an assertion of a thread would go unseen
            wrong.append(e)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong, wrong


def test_on_the_tensors_own_gpu():
    last = torch.cuda.device_count() - 1
    x, labels = features()
    there = x.to(f"cuda:{last}")
    before = torch.cuda.current_device()
    ids = conr.neighbors(there)
    assert torch.cuda.current_device() == before and ids.device == there.device
    assert shared(ids, conr.neighbors(x)) > 0.99


if __name__ == "__main__":
    failed = 0
    for name, test in sorted(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            print(f"ok      {name}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
    sys.exit(failed > 0)
