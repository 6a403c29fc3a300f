/* confident.c: the stage 2 of DCBoost (Li et al., 2025), in place of neighborhoods and the boundary
 * filter.  A row of a half batch is confident if its k nearest keys of the batch all have its pseudo
 * label; each half chooses k and its rows anew, from the keys it is pulled towards.  The loss is
 *
 *     confident_byol        every row towards its own key, with noise before the predictor
 *     confident_pull        confident rows of a label towards all keys of such rows, labels with
 *                           equal weight
 *     confident_prototypes  ProPos' prototype loss over the confident rows
 *
 * The first two are sums over both halves, as BYOL's loss is, the third is a mean. */
#include "train/confident.h"

#include "base/status.h"

int confident_half(trainer *t, const half *h, int v) {
    int rc = 0;
    device *dev = t->dev;
    int32_t *alike = t->alike + (size_t)v * t->n;
    TRY(dev->op.confident(dev, h->key, t->n, t->d, t->feed.ids, t->label_on, t->o.confident_k,
                          t->alike_work, alike));
    TRY(dev->op.pull(dev, h->q, h->key, t->n, t->d, NULL, 1, NULL, (float)t->o.confident_byol,
                     t->loss, h->dq));
    TRY(dev->op.pull_alike(dev, h->q, h->key, t->n, t->d, alike, t->K, (float)t->o.confident_pull,
                           t->scatter_work, t->loss, h->dq));
done:
    return rc;
}

int confident_prototypes(trainer *t) {
    int rc = 0;
    size_t rows = (size_t)t->n * t->d;
    for (int v = 0; v < 2; v++)
        TRY(t->dev->op.prototypes(
            t->dev, t->z + v * rows, t->key + v * rows, t->n, t->d, NULL,
            t->alike + (size_t)v * t->n, t->K, (float)t->o.prototype_temperature,
            (float)t->o.confident_prototypes / 2, t->scatter_work, t->loss, t->dz + v * rows));
done:
    return rc;
}
