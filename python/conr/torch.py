"""CoNR for your own PyTorch training loop.

    from conr.torch import ConAffLoss

    pull = ConAffLoss(k=10, k1=10, k2=2)
    loss = pull(q_a, k_b, labels, centroids, fraction) + pull(q_b, k_a, labels, centroids, fraction)

q are predictions, k the targets of the other view (from a target network, or under stop-gradient),
as in any framework with two views.  Neighborhoods and filter come from libconr and carry no
gradient.  They are computed where the targets are: for CUDA tensors on their GPU, on torch's
current stream, without a copy and without waiting (up to 8192 rows per batch).
"""
from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .features import boundary, boundary_fraction, boundary_keep, neighbors

__all__ = ["ConAffLoss", "boundary_fraction"]


class ConAffLoss(nn.Module):
    """Pulls each prediction towards the targets of its contextually affinitive neighbors.

    The loss is minus the mean, over the kept anchors i, of the mean cosine between prediction i and
    the targets j in the neighborhood of i: between -1 and 1.  With two views, add both losses
    (BYOL) or average them (SimSiam).

    k, k1, k2, layers, alpha, resymmetrize, local: as in conr.neighbors.
    normalize_centroids: as in conr.boundary.
    mean: 'kept' divides by the number of kept anchors, 'batch' by the batch size.
    """

    def __init__(self, k: int = 10, k1: int = 10, k2: int = 2, *, layers: int = 2,
                 alpha: float = 2.0, resymmetrize: bool = True, local: bool = False,
                 normalize_centroids: bool = False, mean: str = "kept", threads: int = 0) -> None:
        super().__init__()
        if mean not in ("kept", "batch"):
            raise ValueError(f"mean {mean!r}: no such mean; give 'kept' or 'batch'")
        self.how: Dict[str, Any] = dict(
            k=k, k1=k1, k2=k2, layers=layers, alpha=alpha, resymmetrize=resymmetrize, local=local,
            threads=threads)
        self.normalize_centroids, self.mean, self.threads = normalize_centroids, mean, threads

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.how.items())

    @torch.no_grad()
    def select(self, targets: Tensor, labels: Optional[Tensor] = None,
               centroids: Optional[Tensor] = None,
               fraction: float = 1.0) -> Tuple[Tensor, Optional[Tensor]]:
        """Neighbors, int64 [n, k], and the anchors to keep, bool [n], or None for all."""
        rows = targets.detach().float()
        ids = neighbors(rows, **self.how)
        if labels is None or fraction >= 1:
            return ids, None
        if centroids is None:
            raise ValueError("labels: given without centroids; give both, or neither")
        ratio = boundary(rows, centroids, labels, normalize_centroids=self.normalize_centroids,
                         threads=self.threads)
        return ids, boundary_keep(ratio, fraction)

    def forward(self, predictions: Tensor, targets: Tensor, labels: Optional[Tensor] = None,
                centroids: Optional[Tensor] = None, fraction: float = 1.0) -> Tensor:
        """predictions, targets: [n, d], of unit length or not; row i of both is image i.  No
        gradient reaches the targets.  labels: [n] pseudo-labels, centroids: [K, d], both from
        k-means on all images (conr.KMeans), on the device of the targets or copied there in each
        call.  fraction: of the anchors to keep."""
        if predictions.shape != targets.shape or predictions.dim() != 2:
            raise ValueError(f"predictions {list(predictions.shape)}, targets "
                             f"{list(targets.shape)}; give two of shape [n, d]")
        ids, kept = self.select(targets, labels, centroids, fraction)
        t = F.normalize(targets.detach(), dim=1)
        # the mean over neighbors of <q, t_j> is <q, the mean of t_j>
        cosine = (F.normalize(predictions, dim=1) * t[ids].mean(1)).sum(1)
        if kept is None:
            return -cosine.mean()
        weights = kept.to(cosine.dtype)
        return -(cosine * weights).sum() / (weights.sum() if self.mean == "kept" else len(cosine))
