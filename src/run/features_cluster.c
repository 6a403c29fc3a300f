/* features_cluster.c: from features to clusters and their scores. */
#include "run/features.h"

#include "base/memory.h"
#include "base/status.h"
#include "images/images.h"
#include "kernels/rows.h"
#include "refine/refine.h"
#include "run/baseline.h"
#include "json/json.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How much more the neighborhoods must confirm the clusters of refined features: below it, the
 * difference says little about which are better (docs/log/features.md). */
#define LEAD 0.001

/* ---- K and the head -------------------------------------------------------------------------- */

static conr_kmeans_options kmeans_options(const features_run *r) {
    conr_kmeans_options k = conr_kmeans_defaults();
    k.clusters = r->K;
    k.restarts = r->o.restarts;
    k.seed = (uint64_t)r->o.seed;
    return k;
}

/* Before refining, whose boundary filter needs a K. */
static int choose_clusters(features_run *r) {
    int rc = 0;
    const conr_features_options *to = r->to;
    conr_kmeans_options k = kmeans_options(r);
    r->K = to->clusters;
    if (r->K == 0) {
        int high = to->high < r->n ? to->high : (int)r->n;
        int low = to->low < high ? to->low : high;
        char line[96];
        TRY(refine_choose_clusters(r->c, r->given, r->n, r->d, &k, low, high, &r->K));
        r->o.clusters_low = low, r->o.clusters_high = high;
        snprintf(line, sizeof line, "K estimated from the features: %d", r->K);
        features_message(r, line);
    }
    r->o.clusters = r->K;
done:
    return rc;
}

/* What the caller gave, over the defaults. */
static void set_neighbors(const features_run *r, conr_neighbors_options *o) {
    const conr_neighbors_options *given = &r->to->neighbors;
    if (given->k >= 0) o->k = given->k;
    if (given->k1 >= 0) o->k1 = given->k1;
    if (given->k2 >= 0) o->k2 = given->k2;
    if (given->layers >= 0) o->layers = given->layers;
    if (given->alpha >= 0) o->alpha = given->alpha;
    if (given->resymmetrize >= 0) o->resymmetrize = given->resymmetrize;
    if (!(given->recall < 0)) o->recall = given->recall;
}

static int train_head(features_run *r) {
    int rc = 0;
    conr_refine_options o = conr_refine_defaults();
    o.clusters = r->K;
    o.seed = (uint64_t)r->o.seed;
    set_neighbors(r, &o.neighbors);
    TRY(conr_refine(r->c, r->given, r->n, r->d, &o, &r->head));
done:
    return rc;
}

/* The rows that are clustered: through the head, or the features themselves as unit rows. */
static int make_rows(features_run *r) {
    int rc = 0;
    int64_t takes;
    r->width = r->d;
    if (r->head) conr_head_about(r->head, &takes, &r->width);
    free(r->rows);
    r->rows = memory_new("features", (size_t)r->n * (size_t)r->width, sizeof *r->rows);
    TRY(r->rows ? 0 : CONR_ENOMEM);
    if (r->head)
        TRY(conr_head_apply(r->c, r->head, r->given, r->n, r->d, r->rows));
    else if (r->again) /* unit rows already: scaled again, they would change in their last bits */
        memcpy(r->rows, r->given, (size_t)r->n * (size_t)r->width * sizeof *r->rows);
    else
        rows_normalize(r->c->host->threads, r->given, (int)r->n, (int)r->d, r->rows, NULL);
done:
    return rc;
}

/* ---- clusters -------------------------------------------------------------------------------- */

/* k-means or the graph, by signs that need no labels.  Refined features are for k-means: a head
 * keeps the directions that tell the clusters of k-means apart, and a cut finds little else there
 * (docs/log/features.md). */
static int choose_method(features_run *r, bool *use_graph) {
    int graph = 0;
    *use_graph = false;
    if (r->head) return 0;
    int rc =
        conr_choose_method(r->c, r->rows, r->n, r->width, r->K, (uint64_t)r->o.seed, &graph, NULL);
    *use_graph = graph;
    return rc;
}

/* The means of the rows of each cluster, which the graph does not have, and the objective that
 * k-means would report for them. */
static int take_means(features_run *r) {
    size_t d = (size_t)r->width, K = (size_t)r->K;
    double *sum = calloc(K * d, sizeof *sum);
    int64_t *count = calloc(K, sizeof *count);
    int rc = sum && count ? 0 : fail_memory("clusters", 8.0 * (double)(K * d));
    for (int64_t i = 0; rc == 0 && i < r->n; i++) {
        size_t k = (size_t)r->label[i];
        count[k]++;
        for (size_t j = 0; j < d; j++) sum[k * d + j] += r->rows[(size_t)i * d + j];
    }
    for (size_t k = 0; rc == 0 && k < K; k++)
        for (size_t j = 0; j < d; j++)
            r->centroids[k * d + j] = (float)(count[k] ? sum[k * d + j] / (double)count[k] : 0);
    free(sum), free(count);
    return rc;
}

void features_distances(const float *rows, int64_t n, int64_t d, const float *centroids,
                        const int32_t *label, float *out) {
    for (int64_t i = 0; i < n; i++) {
        const float *x = rows + i * d, *m = centroids + label[i] * d;
        double dot = 0, a = 0, b = 0;
        for (int64_t j = 0; j < d; j++)
            dot += (double)x[j] * m[j], a += (double)x[j] * x[j], b += (double)m[j] * m[j];
        out[i] = (float)(a > 0 && b > 0 ? 1 - dot / sqrt(a * b) : 1);
    }
}

static int by_graph(features_run *r) {
    int rc = 0;
    conr_graph_options g = conr_graph_defaults();
    g.clusters = r->K;
    set_neighbors(r, &g.neighbors);
    g.seed = (uint64_t)r->o.seed;
    TRY(conr_graph(r->c, r->rows, r->n, r->width, &g, r->label));
    TRY(take_means(r));
    features_distances(r->rows, r->n, r->width, r->centroids, r->label, r->distance);
    r->objective = 0;
    for (int64_t i = 0; i < r->n; i++) r->objective += r->distance[i];
done:
    return rc;
}

static int by_kmeans(features_run *r) {
    int rc = 0;
    conr_kmeans_options k = kmeans_options(r);
    conr_kmeans_history h = {0};
    TRY(conr_kmeans(r->c, r->rows, r->n, r->width, &k, r->centroids, r->label, &h));
    r->objective = h.objective;
    TRY(conr_assign(r->c, r->rows, r->n, r->width, CONR_COSINE, r->centroids, r->K, r->label,
                    r->distance));
done:
    conr_kmeans_history_free(&h);
    return rc;
}

/* Clusters of the rows as they are now, in place of those that there were. */
static int cluster_rows(features_run *r, bool graph) {
    int rc = 0;
    free(r->centroids), free(r->label), free(r->distance);
    r->centroids = memory_new("clusters", (size_t)r->K * (size_t)r->width, sizeof *r->centroids);
    r->label = memory_new("labels", (size_t)r->n, sizeof *r->label);
    r->distance = memory_new("distances", (size_t)r->n, sizeof *r->distance);
    TRY(r->centroids && r->label && r->distance ? 0 : CONR_ENOMEM);
    TRY(graph ? by_graph(r) : by_kmeans(r));
done:
    return rc;
}

static void swap_clusters(features_run *a, features_run *b) {
    features_run was = *a;
    a->centroids = b->centroids, a->label = b->label, a->distance = b->distance;
    a->objective = b->objective;
    b->centroids = was.centroids, b->label = was.label, b->distance = was.distance;
    b->objective = was.objective;
}

/* Refined or not: by which clusters of k-means the neighborhoods among the features as given confirm
 * better.  Only clusters of one method are compared so: a cut of the graph would win whatever it is
 * worth, since it cuts what is measured.  Leaves rows and clusters of the better. */
static int choose_rows(features_run *r) {
    int rc = 0;
    char line[160];
    features_run as_given = {0}; /* its clusters */
    TRY(make_rows(r));
    TRY(cluster_rows(r, false));
    TRY(features_near(r));
    double plain = features_modularity(r, r->label);
    swap_clusters(r, &as_given);
    TRY(train_head(r));
    TRY(make_rows(r));
    TRY(cluster_rows(r, false));
    double refined = features_modularity(r, r->label);
    bool take = refined > plain + LEAD;
    if (!take) {
        conr_head_close(r->head);
        r->head = NULL;
        TRY(make_rows(r));
        swap_clusters(r, &as_given);
    }
    r->o.refine_chosen = true;
    snprintf(line, sizeof line,
             "%s: neighbors confirm the clusters of refined features to %.4f, of the features as "
             "given to %.4f",
             take ? "refined" : "not refined", refined, plain);
    features_message(r, line);
    TRY(features_log(r, json_pack("{si si ss ss sf sf}", "step", 0, "epoch", 0, "event", "refine",
                                  "taken", take ? "conaff" : "none", "refined", refined, "plain",
                                  plain)));
done:
    free(as_given.centroids), free(as_given.label), free(as_given.distance);
    return rc;
}

static int find_clusters(features_run *r) {
    int rc = 0;
    bool graph = !strcmp(r->to->method, "graph"), chosen = features_refines(r) == REFINE_CHOOSE;
    r->boundary = memory_new("distances", (size_t)r->n, sizeof *r->boundary);
    TRY(r->boundary ? 0 : CONR_ENOMEM);
    if (chosen) {
        TRY(choose_rows(r));
    } else {
        if (features_refines(r) == REFINE_YES) TRY(train_head(r));
        TRY(make_rows(r));
    }
    if (r->head) snprintf(r->o.refine, sizeof r->o.refine, "conaff");
    if (!strcmp(r->to->method, "auto")) {
        TRY(choose_method(r, &graph));
        r->o.method_chosen = true;
    }
    snprintf(r->o.method, sizeof r->o.method, "%s", graph ? "graph" : "kmeans");
    if (graph || !chosen) TRY(cluster_rows(r, graph));
    TRY(conr_boundary(r->c, r->rows, r->n, r->width, CONR_COSINE, r->centroids, r->K, r->label, 0,
                      r->boundary));
done:
    return rc;
}

/* ---- what it is worth ------------------------------------------------------------------------ */

/* Random weights give features, too.  If those of an encoder are worse than the descriptor's, it is
 * hardly what it should be. */
static int untrained(features_run *r) {
    int rc = 0;
    char text[256];
    conr_baseline b;
    trained t = {.read = &r->images->source,
                 .features = r->given,
                 .d = (int)r->d,
                 .label = r->label,
                 .K = r->K,
                 .truth = r->truth,
                 .seed = (uint64_t)r->o.seed};
    TRY(device_report(r->c->dev, "comparing with the descriptor", 0, 1));
    TRY(baseline_make(r->c, &t, &b));
    if (b.images == 0) goto done;
    json_t *o = json_pack("{si si ss sI sb}", "step", 0, "epoch", 0, "event", "encoder", "images",
                          (json_int_t)b.images, "descriptor_wins", b.descriptor_wins);
    if (isfinite(b.training.confirmed))
        o = json_put(o, "confirmed", json_real(b.training.confirmed));
    if (isfinite(b.descriptor.confirmed))
        o = json_put(o, "descriptor_confirmed", json_real(b.descriptor.confirmed));
    TRY(features_log(r, o));
    if (!b.descriptor_wins) goto done;
    snprintf(text, sizeof text,
             "warning: the features look untrained: clusters of the built-in descriptor are better "
             "(%s %.3f, theirs %.3f); is it the right file, with the right settings?",
             b.labeled ? "NMI" : "confirmed by neighbors to",
             b.labeled ? b.descriptor.scores.nmi : b.descriptor.confirmed,
             b.labeled ? b.training.scores.nmi : b.training.confirmed);
    features_message(r, text);
    TRY(features_log(r, json_pack("{si si ss}", "step", 0, "epoch", 0, "warning", text)));
done:
    return rc;
}

/* The text of warning i = 0, 1, ..., or NULL.  out: room for it. */
static const char *warning(const features_run *r, int i, char *out, size_t size) {
    const evaluation *e = &r->scores;
    double fair = (double)r->n / r->K;
    if (e->deviation < 0.01 && i-- == 0)
        return snprintf(out, size,
                        "warning: the features are nearly all alike (deviation %.4f of 1); are "
                        "they what they should be?",
                        e->deviation),
               out;
    if ((double)e->smallest < 0.1 * fair && i-- == 0)
        return snprintf(out, size,
                        "warning: the smallest cluster has %lld rows, an even share would be "
                        "%.0f; classes may differ in size, or be fewer than %d",
                        (long long)e->smallest, fair, r->K),
               out;
    if (r->K > 1 && (double)e->largest > 4 * fair && i-- == 0)
        return snprintf(out, size,
                        "warning: the largest cluster has %lld rows, an even share would be "
                        "%.0f; more clusters may split it",
                        (long long)e->largest, fair),
               out;
    return NULL;
}

static int evaluate(features_run *r) {
    int rc = 0;
    evaluation *e = &r->scores;
    char text[256];
    TRY(device_report(r->c->dev, "scores", 0, 1));
    TRY(evaluation_make(r->c, r->rows, r->n, (int)r->width, r->label, r->K, r->truth, NULL,
                        (uint64_t)r->o.seed, e));
    r->silhouette = e->silhouette;
    if (r->truth && e->largest < r->n)
        TRY(conr_silhouette(r->c, r->rows, r->n, r->width, CONR_COSINE, r->label,
                            (uint64_t)r->o.seed, &r->silhouette, NULL));
    TRY(features_near(r));
    r->agreement = features_agreement(r, r->label);
    json_t *o =
        json_pack("{si si sf si sf sI sI ss}", "step", 0, "epoch", 0, "objective", r->objective,
                  "clusters", r->K, "deviation", e->deviation, "smallest", (json_int_t)e->smallest,
                  "largest", (json_int_t)e->largest, "method", r->o.method);
    if (r->truth) {
        o = json_put(o, "nmi", json_real(e->scores.nmi));
        o = json_put(o, "acc", json_real(e->scores.acc));
        o = json_put(o, "ari", json_real(e->scores.ari));
        o = json_put(o, "balanced_acc", json_real(e->scores.balanced_acc));
        if (isfinite(e->knn)) o = json_put(o, "knn", json_real(e->knn));
    }
    if (isfinite(r->silhouette)) o = json_put(o, "silhouette", json_real(r->silhouette));
    if (isfinite(r->agreement)) o = json_put(o, "neighbor_agreement", json_real(r->agreement));
    TRY(features_log(r, o));
    for (int i = 0; warning(r, i, text, sizeof text); i++) {
        features_message(r, text);
        TRY(features_log(r, json_pack("{si si ss}", "step", 0, "epoch", 0, "warning", text)));
    }
    if (r->to->encoder) TRY(untrained(r));
done:
    return rc;
}

int features_cluster(features_run *r) {
    int rc = 0;
    if (r->d > INT_MAX || r->n > INT_MAX)
        TRY(fail(CONR_EINVAL, "features: %lld x %lld are too many; split them", (long long)r->n,
                 (long long)r->d));
    TRY(choose_clusters(r));
    TRY(find_clusters(r));
    TRY(evaluate(r));
done:
    return rc;
}
