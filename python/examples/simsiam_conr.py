"""SimSiam + CoNR in PyTorch, complete: two stages on the bundled sample of Fashion-MNIST.

    python python/examples/simsiam_conr.py --epochs 20 --stage1-epochs 12
    python python/examples/simsiam_conr.py --images 512 --epochs 2 --stage1-epochs 1  # a quick look

Stage 1 is SimSiam. Stage 2 changes three things: k-means once per epoch, the fraction of samples
kept, and ConAffLoss in place of the negative cosine.
"""
import argparse
import gzip
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import conr
from conr.torch import ConAffLoss, boundary_fraction

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "fashion-mnist"


def idx(name, skip):
    with gzip.open(SAMPLE / name) as f:
        return np.frombuffer(f.read(), np.uint8, offset=skip)


def views(x, least):
    """A random crop of each image, resized back, mirrored or not, brighter or darker."""
    n = len(x)
    scale = torch.empty(n, 1, 1).uniform_(least, 1).sqrt()
    theta = torch.zeros(n, 2, 3)
    theta[:, 0, 0] = scale[:, 0, 0] * torch.where(torch.rand(n) < 0.5, -1.0, 1.0)
    theta[:, 1, 1] = scale[:, 0, 0]
    theta[:, :, 2:] = (torch.rand(n, 2, 1) * 2 - 1) * (1 - scale)
    x = F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False),
                      padding_mode="reflection", align_corners=False)
    return x * torch.empty(n, 1, 1, 1).uniform_(0.6, 1.4)


class SimSiam(nn.Module):
    def __init__(self, width=32, features=128):
        super().__init__()
        layers, c = [], 1
        for out, stride in ((width, 2), (2 * width, 2), (4 * width, 2)):
            layers += [nn.Conv2d(c, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
            c = out
        self.encoder = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.projector = nn.Sequential(nn.Linear(c, features, bias=False), nn.BatchNorm1d(features),
                                       nn.ReLU(), nn.Linear(features, features, bias=False),
                                       nn.BatchNorm1d(features))
        self.predictor = nn.Sequential(nn.Linear(features, features // 4, bias=False),
                                       nn.BatchNorm1d(features // 4), nn.ReLU(),
                                       nn.Linear(features // 4, features))

    def forward(self, x):
        z = self.projector(self.encoder(x))
        return self.predictor(z), z.detach()


@torch.no_grad()
def features(model, x):
    model.eval()
    z = torch.cat([model(part)[1] for part in x.split(500)])
    model.train()
    return F.normalize(z, dim=1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--images", type=int, default=10000)
    p.add_argument("--epochs", type=int, default=20)
    p.add_argument("--stage1-epochs", type=int, default=12)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--clusters", type=int, default=10)
    p.add_argument("--lr", type=float, default=0.12)
    a = p.parse_args()
    torch.manual_seed(1)
    x = idx("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28)[:a.images]
    x = torch.from_numpy(x.astype(np.float32) / 255 * 2 - 0.6)
    truth = idx("t10k-labels-idx1-ubyte.gz", 8)[:a.images]
    model, kmeans, pull = SimSiam(), conr.KMeans(a.clusters), ConAffLoss(k=10, k1=10, k2=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=a.lr, momentum=0.9, weight_decay=5e-4)
    for epoch in range(1, a.epochs + 1):
        stage2 = epoch - a.stage1_epochs  # from 1
        for group in optimizer.param_groups:
            group["lr"] = a.lr * (0.1 if stage2 > 0 else 1)
        if stage2 > 0:
            kmeans.fit(features(model, x))
            labels = torch.from_numpy(kmeans.labels_)
            fraction = boundary_fraction(stage2, 0.8, a.epochs - a.stage1_epochs)
        losses = []
        for ids in torch.randperm(len(x)).split(a.batch):
            if len(ids) < a.batch:
                continue
            least = 0.45 if stage2 > 0 else 0.3
            (p1, z1), (p2, z2) = model(views(x[ids], least)), model(views(x[ids], least))
            if stage2 > 0:
                about = (labels[ids], kmeans.cluster_centers_, fraction)
                loss = (pull(p1, z2, *about) + pull(p2, z1, *about)) / 2
            else:
                loss = -(F.cosine_similarity(p1, z2) + F.cosine_similarity(p2, z1)).mean() / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        s = conr.metrics.scores(truth, kmeans.fit_predict(features(model, x)))
        print(f"epoch {epoch} stage {1 + (stage2 > 0)} loss {np.mean(losses):.4f} "
              f"NMI {s['nmi']:.4f} ACC {s['acc']:.4f} ARI {s['ari']:.4f}", flush=True)


if __name__ == "__main__":
    main()
