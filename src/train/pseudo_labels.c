/* pseudo_labels.c: features of all images, their clusters, and what stage 2 needs of both. */
#include "train/train.h"

#include "base/memory.h"
#include "base/status.h"
#include "clusters/kmeans.h"
#include "metrics/knn.h"
#include "train/propos.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One batch: unit rows into t->dq.  Each rank embeds its share. */
static int embed_batch(void *arg) {
    int rc = 0;
    trainer *t = arg;
    parameters at = trainer_clustered(t);
    TRY(feed_plain(&t->feed, t->at, t->images));
    TRY(pass_forward(t->plain_pass, &at, t->images, PASS_EVAL));
    TRY(pass_output(t->plain_pass, t->net.projector_end, t->flat));
    TRY(t->dev->op.rows_normalize(t->dev, t->flat, t->feed.plain, t->d, t->own_dq, t->norm));
    TRY(ranks_gather(&t->ranks, t->dev, t->own_dq, (size_t)t->feed.plain * t->d * sizeof *t->dq,
                     t->dq));
done:
    return rc;
}

/* All images, into features_on. */
static int embed(trainer *t) {
    int rc = 0, n = t->feed.plain * t->ranks.count;
    device *dev = t->dev;
    if (t->featured == t->step) return 0;
    for (int64_t first = 0; first < t->store->n; first += n) {
        int64_t count = t->store->n - first < n ? t->store->n - first : n;
        TRY(device_report(dev, "embedding", first, t->store->n));
        TRY(feed_plain_next(&t->feed, first));
        TRY(dev->op.repeat(dev, embed_batch, t, &t->recorded_embedding));
        TRY(dev->op.copy(dev, t->features_on + first * t->d, t->dq,
                         (size_t)count * t->d * sizeof *t->features_on));
    }
    t->featured = t->step;
    t->fetched = -1;
done:
    return rc;
}

int trainer_features(trainer *t) {
    int rc = 0;
    TRY(embed(t));
    if (t->features == t->features_on || t->fetched == t->featured) goto done;
    TRY(t->dev->op.get(t->dev, t->features, t->features_on,
                       (size_t)t->store->n * t->d * sizeof *t->features));
    t->fetched = t->featured;
done:
    return rc;
}

/* out: unit rows; a zero row stays zero. */
static void scale_rows(const float *x, int n, int d, float *out) {
    for (int i = 0; i < n; i++, x += d, out += d) {
        double square = 0;
        for (int j = 0; j < d; j++) square += (double)x[j] * x[j];
        for (int j = 0; j < d; j++) out[j] = square > 0 ? (float)(x[j] / sqrt(square)) : 0;
    }
}

void trainer_forget_steps(trainer *t) {
    for (int i = 0; i < 6; i++) {
        t->dev->op.recording_free(t->dev, t->recorded_step[i / 2][i % 2]);
        t->recorded_step[i / 2][i % 2] = NULL;
    }
}

int trainer_set_labels(trainer *t, const int32_t *label, const float *centroids, int K) {
    int rc = 0;
    device *dev = t->dev;
    size_t bytes = (size_t)t->store->n * sizeof *label, block = (size_t)K * t->d;
    float *unit = NULL;
    if (K != t->K) {
        free(t->centroids);
        dev->op.free(dev, t->centroids_on);
        t->centroids_on = NULL;
        t->K = 0;
        t->centroids = memory_new("centroids", block, sizeof *t->centroids);
        TRY(t->centroids ? 0 : CONR_ENOMEM);
        TRY(dev->op.alloc(dev, block * sizeof(float), (void **)&t->centroids_on));
        TRY(propos_room(t, K));
        t->K = K;
        trainer_forget_steps(t); /* they contain the old pointers */
    }
    if (label != t->label) memcpy(t->label, label, bytes);
    if (centroids != t->centroids) memcpy(t->centroids, centroids, block * sizeof *centroids);
    TRY(dev->op.put(dev, t->label_on, t->label, bytes));
    if (t->o.normalize_centroids) {
        unit = memory_new("centroids", block, sizeof *unit);
        TRY(unit ? 0 : CONR_ENOMEM);
        scale_rows(t->centroids, K, t->d, unit);
    }
    TRY(dev->op.put(dev, t->centroids_on, unit ? unit : t->centroids, block * sizeof *unit));
done:
    free(unit);
    return rc;
}

/* The objective at the end of each run of k-means, to see whether they agree. */
static int note_runs(trainer *t, const conr_kmeans_history *h) {
    int n = 0;
    for (int i = 0; i < h->steps; i++)
        n += i + 1 == h->steps || h->step[i + 1].run != h->step[i].run;
    float *tried = realloc(t->tried, (size_t)(n + 1) * sizeof *tried);
    if (!tried) return fail_memory("k-means", (double)n * sizeof *tried);
    t->tried = tried, t->n_tried = 0;
    for (int i = 0; i < h->steps; i++)
        if (i + 1 == h->steps || h->step[i + 1].run != h->step[i].run)
            tried[t->n_tried++] = (float)h->step[i].objective;
    return 0;
}

bool neighbors_confirm(double modularity, double last, double within, int64_t rows) {
    return modularity > last + 2 * sqrt(within * (1 - within) / (double)rows);
}

/* Features that have been trained for long have many optima of k-means, whose objectives differ
 * less than the clusters do.  So a lower one replaces the one that follows from the last clusters
 * only if it also has the larger modularity on the graph of nearest neighbors.
 * o: with the last centroids as its start; centroids, label, history: the lowest, or what replaces
 * it. */
static int prefer_last(trainer *t, const conr_kmeans_options *o, float *centroids, int32_t *label,
                       conr_kmeans_history *history) {
    enum { NEAREST = 20, FEW = 50, ALL = 20000, SAMPLE = 10000 };
    int rc = 0, k = t->store->n / FEW < NEAREST ? (int)(t->store->n / FEW) : NEAREST;
    int64_t n = t->store->n;
    size_t block = (size_t)o->clusters * t->d;
    double lowest, last, within, was_within;
    conr_kmeans_options follow = *o;
    conr_kmeans_history after = {0};
    knn_lists near = {0};
    float *old_centroids = memory_new("centroids", block, sizeof *old_centroids);
    int32_t *old_label = memory_new("labels", (size_t)n, sizeof *old_label);
    TRY(old_centroids && old_label ? 0 : CONR_ENOMEM);
    follow.restarts = 0;
    TRY(trainer_features(t));
    TRY(kmeans_on_device(t->c, NULL, t->features_on, n, t->d, &follow, old_centroids, old_label,
                         &after));
    TRY(knn_search(t->c, t->features, n, t->d, k > 0 ? k : 1, ALL, SAMPLE, &near));
    TRY(knn_lists_agreement(&near, label, o->clusters, &within, &lowest));
    TRY(knn_lists_agreement(&near, old_label, o->clusters, &was_within, &last));
    if (!neighbors_confirm(lowest, last, was_within, near.count)) {
        memcpy(centroids, old_centroids, block * sizeof *centroids);
        memcpy(label, old_label, (size_t)n * sizeof *label);
        history->objective = after.objective;
    }
done:
    knn_free(&near);
    conr_kmeans_history_free(&after);
    free(old_centroids), free(old_label);
    return rc;
}

/* The ranks share the runs of k-means; rank 0 broadcasts the result, so that all have the same bits
 * even on different machines. */
int trainer_cluster(trainer *t) {
    int rc = 0;
    bool leads = t->ranks.rank == 0;
    conr_kmeans_options o = conr_kmeans_defaults();
    conr_kmeans_history history = {0};
    float *centroids = NULL;
    int32_t *label = NULL;
    int64_t n = t->store->n;
    TRY(embed(t));
    o.restarts = t->o.restarts;
    o.iterations = t->o.iterations;
    o.seed = (uint64_t)t->o.seed;
    if (t->o.clusters == 0) TRY(trainer_features(t));
    if (t->o.clusters == 0 && leads)
        TRY(conr_choose_clusters(t->c, t->features, n, t->d, &o, t->o.clusters_low,
                                 t->o.clusters_high, &t->o.clusters, NULL));
    TRY(ranks_broadcast(&t->ranks, &t->o.clusters, sizeof t->o.clusters));
    o.clusters = t->o.clusters;
    if (t->o.kmeans_warm && t->K == o.clusters) o.start = t->centroids;
    centroids = memory_new("centroids", (size_t)o.clusters * t->d, sizeof *centroids);
    label = memory_new("labels", (size_t)n, sizeof *label);
    TRY(centroids && label ? 0 : CONR_ENOMEM);
    TRY(kmeans_on_device(t->c, t->ranks.talks ? &t->ranks : NULL, t->features_on, n, t->d, &o,
                         centroids, label, &history));
    TRY(note_runs(t, &history));
    if (leads && o.start && history.run != o.restarts && !strcmp(t->o.kmeans_choice, "neighbors"))
        TRY(prefer_last(t, &o, centroids, label, &history));
    t->objective = history.objective;
    TRY(ranks_broadcast(&t->ranks, &t->objective, sizeof t->objective));
    TRY(ranks_broadcast(&t->ranks, label, (size_t)n * sizeof *label));
    TRY(ranks_broadcast(&t->ranks, centroids, (size_t)o.clusters * t->d * sizeof *centroids));
    TRY(trainer_set_labels(t, label, centroids, o.clusters));
    t->clustered = t->step;
done:
    conr_kmeans_history_free(&history);
    free(centroids);
    free(label);
    return rc;
}
