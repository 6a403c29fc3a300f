/* propos.c: what ProPos (Huang et al., TPAMI 2022) adds to a step of BYOL, once there are pseudo
 * labels: the predictor sees the projector's output z with noise on it (positives sampled around an
 * image), and the prototypes of the batch's clusters, made of z without noise, are kept apart.
 *
 * As in the authors' code the prototypes are of the projector's output, not of the predictor's, and
 * the loss is the mean over both halves; clusters absent from the batch, which have a logit of -10
 * there, are left out. */
#include "train/propos.h"

#include "base/status.h"
#include "device/prototypes.h"

int propos_forward(trainer *t, int part, const act *images, pass_mode mode) {
    int rc = 0, end = t->net.projector_end;
    device *dev = t->dev;
    parameters online = {t->w, t->running};
    size_t block = (size_t)t->m * t->d;
    int first = (part * t->ranks.count + t->ranks.rank) * t->m; /* of our rows in the batch */
    TRY(pass_forward_layers(t->online_pass, &online, images, mode, 0, end));
    if (mode != PASS_REPEAT) TRY(pass_output(t->online_pass, end, t->flat));
    for (int v = 0; v < 2; v++) {
        size_t at = (size_t)v * t->own + (size_t)part * t->m;
        act *z = act_at(dev, pass_activations(t->online_pass, end), v * block);
        if (mode != PASS_REPEAT)
            TRY(dev->op.rows_normalize(dev, t->flat + v * block, t->m, t->d, t->own_z + at * t->d,
                                       t->norm_z + at));
        if (t->o.positive_noise > 0)
            TRY(dev->op.noise(dev, t->at, (uint64_t)t->o.seed, (float)t->o.positive_noise,
                              v * t->n + first, t->m, t->d, z));
    }
    TRY(pass_forward_layers(t->online_pass, &online, images, mode, end, t->net.n_layers));
done:
    return rc;
}

int propos_loss(trainer *t) {
    int rc = 0;
    size_t rows = (size_t)t->n * t->d;
    for (int v = 0; v < 2; v++)
        TRY(t->dev->op.prototypes(t->dev, t->z + v * rows, t->key + v * rows, t->n, t->d,
                                  t->feed.ids, t->label_on, t->K, (float)t->o.prototype_temperature,
                                  (float)t->o.prototypes / 2, t->scatter_work, t->loss,
                                  t->dz + v * rows));
done:
    return rc;
}

int propos_back(trainer *t) {
    int rc = 0;
    device *dev = t->dev;
    size_t block = (size_t)t->m * t->d;
    for (int i = 0; i < 2 * t->o.accumulate; i++)
        TRY(ranks_gather_back(&t->ranks, dev, t->dz + (size_t)i * block * t->ranks.count, block,
                              t->own_dz + (size_t)i * block));
    TRY(dev->op.rows_normalize_back(dev, t->own_z, t->norm_z, t->own_dz, 2 * t->own, t->d,
                                    t->own_dz));
done:
    return rc;
}

int propos_back_part(trainer *t, int part) {
    int rc = 0;
    size_t block = (size_t)t->m * t->d;
    const float *d = t->own_dz; /* one part: already in order */
    if (t->o.accumulate > 1) {
        d = t->own_z; /* no longer needed */
        for (int v = 0; v < 2; v++)
            TRY(t->dev->op.copy(t->dev, t->own_z + v * block,
                                t->own_dz + ((size_t)v * t->own + (size_t)part * t->m) * t->d,
                                block * sizeof *d));
    }
    pass_add_gradient(t->online_pass, t->net.projector_end, d);
done:
    return rc;
}

int propos_room(trainer *t, int K) {
    device *dev = t->dev;
    dev->op.free(dev, t->scatter_work);
    t->scatter_work = NULL;
    if (!trainer_has_z(t)) return 0;
    return dev->op.alloc(dev, prototypes_bytes(t->n, t->d, K), &t->scatter_work);
}
