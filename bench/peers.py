"""Shared by the scripts of bench/: test features, and libconr through ctypes."""
import ctypes
import gzip

import numpy as np

FASHION = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"  # dataset-fashion-mnist


def mixture(n, d=256, classes=30, seed=1):
    """Unit rows around `classes` centers of unequal size, each class with 16 directions of its own,
    similar to learned features."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes, n, p=rng.dirichlet(np.full(classes, 5.0)))
    x = rng.standard_normal((classes, d)).astype(np.float32)[labels]
    x += rng.standard_normal((n, d)).astype(np.float32)
    for c in range(classes):
        own = labels == c
        x[own] += 0.5 * rng.standard_normal((own.sum(), 16)) @ rng.standard_normal((16, d))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def fashion(n, d=256):
    """The pixels of Fashion-MNIST, projected on their first d principal axes."""
    with gzip.open(FASHION) as f:
        x = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 784)[:n].astype(np.float32) / 255
    x -= x.mean(0)
    axes = np.linalg.svd(x.T @ x)[0][:, :d]
    return np.ascontiguousarray(x @ axes, np.float32)


def features(n):
    yield "mixture", mixture(n)
    try:
        yield "fashion", fashion(n)
    except FileNotFoundError:
        print("fashion    skipped: install dataset-fashion-mnist")


class KmeansOptions(ctypes.Structure):
    _fields_ = [("clusters", ctypes.c_int), ("metric", ctypes.c_int), ("restarts", ctypes.c_int),
                ("iterations", ctypes.c_int), ("tolerance", ctypes.c_double),
                ("seed", ctypes.c_uint64), ("start", ctypes.c_void_p)]


class NeighborsOptions(ctypes.Structure):
    _fields_ = [("k", ctypes.c_int), ("k1", ctypes.c_int), ("k2", ctypes.c_int),
                ("layers", ctypes.c_int), ("alpha", ctypes.c_double),
                ("resymmetrize", ctypes.c_int), ("local", ctypes.c_int),
                ("recall", ctypes.c_double)]


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


class Conr:
    def __init__(self, library, threads):
        self.lib, self.context = ctypes.CDLL(library), ctypes.c_void_p()
        self.lib.conr_error.restype = ctypes.c_char_p
        self.lib.conr_kmeans_defaults.restype = KmeansOptions
        self.lib.conr_neighbors_defaults.restype = NeighborsOptions
        self.call("conr_open", b"cpu", threads, ctypes.byref(self.context))

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments) < 0:
            raise RuntimeError(self.lib.conr_error().decode())

    def kmeans(self, x, k, restarts):
        o = self.lib.conr_kmeans_defaults()
        o.clusters, o.restarts, o.metric = k, restarts, 1
        centroids, labels = np.empty((k, x.shape[1]), np.float32), np.empty(len(x), np.int32)
        self.call("conr_kmeans", self.context, pointer(x), ctypes.c_int64(len(x)),
                  ctypes.c_int64(x.shape[1]), ctypes.byref(o), pointer(centroids), pointer(labels),
                  None)
        return centroids

    def neighbors(self, x, k=10, local=False, recall=1.0):
        o = self.lib.conr_neighbors_defaults()
        o.k, o.local, o.recall = k, int(local), recall
        ids = np.empty((len(x), min(k, len(x))), np.int32)
        self.call("conr_neighbors", self.context, pointer(x), ctypes.c_int64(len(x)),
                  ctypes.c_int64(x.shape[1]), ctypes.byref(o), pointer(ids))
        return ids
