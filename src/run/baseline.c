/* baseline.c: see baseline.h. */
#include "run/baseline.h"

#include "base/memory.h"
#include "base/status.h"
#include "describe/describe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SAMPLE = 5000,       /* images, and */
    PER_CLUSTER = 20,    /* at least so many for each cluster, but */
    SAMPLE_MOST = 20000, /* not more than these */
    NEAR = 10,           /* neighbors that are asked */
    RESTARTS = 5,
    KNOWN = 50 /* labels in the sample that scores need, if it is not labeled throughout */
};

static int64_t sample_size(int64_t n, int K) {
    int64_t m = SAMPLE;
    if (m < (int64_t)PER_CLUSTER * K) m = (int64_t)PER_CLUSTER * K;
    if (m > SAMPLE_MOST) m = SAMPLE_MOST;
    return m < n ? m : n;
}

/* One of the two clusterings, of m sampled images. */
typedef struct space {
    float *x; /* [m,d] */
    int64_t d;
    int32_t *label; /* [m] */
    int64_t *wide;  /* [m], the same */
    int32_t *near;  /* [m,k] nearest neighbors, itself first */
    conr_baseline_side *out;
} space;

static int space_new(space *s, int64_t m, int64_t d, int k, conr_baseline_side *out) {
    *s = (space){.d = d, .out = out};
    s->x = memory_new("baseline", (size_t)m, (size_t)d * sizeof *s->x);
    s->label = memory_new("baseline", (size_t)m, sizeof *s->label);
    s->wide = memory_new("baseline", (size_t)m, sizeof *s->wide);
    s->near = memory_new("baseline", (size_t)m, (size_t)k * sizeof *s->near);
    *out = (conr_baseline_side){
        .agreement = NAN, .confirmed = NAN, .silhouette = NAN, .stability = NAN};
    return s->x && s->label && s->wide && s->near ? 0 : CONR_ENOMEM;
}

static void space_free(space *s) { free(s->x), free(s->label), free(s->wide), free(s->near); }

/* The share of neighbors that have a row's label, less what chance gives, of what it leaves;
 * *plain: the share itself. */
static int shared(const space *s, const int32_t *near, int64_t m, int k, double *plain,
                  double *beyond) {
    double purity[NEAR], chance = 0;
    int64_t *count = calloc((size_t)m, sizeof *count);
    if (!count) return fail_memory("baseline", 8.0 * (double)m);
    int rc = conr_purity(near, m, k, s->wide, NULL, purity);
    for (int64_t i = 0; i < m; i++) count[s->wide[i]]++; /* K <= m */
    for (int64_t i = 0; i < m; i++)
        chance += (double)count[i] / (double)m * ((double)count[i] / (double)m);
    if (plain) *plain = purity[k - 2];
    *beyond = (purity[k - 2] - chance) / (1 - chance); /* NaN if all are in one cluster */
    free(count);
    return rc;
}

/* How alike the clusters of two halves are, each carried over to all rows. */
static int stability(conr *c, const space *s, int64_t m, int K, uint64_t seed, double *out) {
    int rc = 0;
    conr_scores same;
    conr_kmeans_options o = conr_kmeans_defaults();
    int64_t half = m / 2, *wide[2] = {0};
    o.clusters = K, o.seed = seed, o.restarts = RESTARTS;
    float *x = memory_new("baseline", (size_t)half, (size_t)s->d * sizeof *x);
    float *centroids = memory_new("baseline", (size_t)K, (size_t)s->d * sizeof *centroids);
    int32_t *label = memory_new("baseline", (size_t)m, sizeof *label);
    for (int h = 0; h < 2; h++) wide[h] = memory_new("baseline", (size_t)m, sizeof **wide);
    TRY(x && centroids && label && wide[0] && wide[1] ? 0 : CONR_ENOMEM);
    for (int h = 0; h < 2; h++) {
        for (int64_t i = 0; i < half; i++)
            memcpy(x + i * s->d, s->x + (2 * i + h) * s->d, (size_t)s->d * sizeof *x);
        TRY(conr_kmeans(c, x, half, s->d, &o, centroids, label, NULL));
        TRY(conr_assign(c, s->x, m, s->d, CONR_COSINE, centroids, K, label, NULL));
        for (int64_t i = 0; i < m; i++) wide[h][i] = label[i];
    }
    TRY(conr_metrics(wide[0], wide[1], m, &same));
    *out = same.acc;
done:
    free(x), free(centroids), free(label), free(wide[0]), free(wide[1]);
    return rc;
}

/* All about one space; `truth` [m], or NULL. */
static int judge(conr *c, space *s, int64_t m, int K, int k, const int64_t *truth, uint64_t seed) {
    int rc = 0;
    double beyond;
    conr_neighbors_options near = {.k = k, .k1 = k, .k2 = 1, .local = 1};
    for (int64_t i = 0; i < m; i++) s->wide[i] = s->label[i];
    TRY(conr_neighbors(c, s->x, m, s->d, &near, s->near));
    TRY(shared(s, s->near, m, k, &s->out->agreement, &beyond));
    if (truth) {
        TRY(conr_metrics(truth, s->wide, m, &s->out->scores));
    } else if (isfinite(beyond)) {
        TRY(conr_silhouette(c, s->x, m, s->d, CONR_COSINE, s->label, seed, &s->out->silhouette,
                            NULL));
        if (K <= m / 2) TRY(stability(c, s, m, K, seed, &s->out->stability));
    }
done:
    return rc;
}

int baseline_make(conr *c, const trained *t, conr_baseline *out) {
    int rc = 0;
    int64_t n = t->images ? t->images->n : t->read->n, m = sample_size(n, t->K), known = 0,
            *id = NULL, *truth = NULL;
    int k = m > NEAR ? NEAR + 1 : (int)m;
    float *centroids = NULL;
    space own = {0}, other = {0};
    conr_kmeans_options o = conr_kmeans_defaults();
    *out = (conr_baseline){0};
    if (t->K > m || k < 2) return 0;
    o.clusters = t->K, o.seed = t->seed, o.restarts = RESTARTS;
    TRY(space_new(&own, m, t->d, k, &out->training));
    TRY(space_new(&other, m, DESCRIBE_SIZE, k, &out->descriptor));
    id = memory_new("baseline", (size_t)m, sizeof *id);
    truth = memory_new("baseline", (size_t)m, sizeof *truth);
    centroids = memory_new("baseline", (size_t)t->K, DESCRIBE_SIZE * sizeof *centroids);
    TRY(id && truth && centroids ? 0 : CONR_ENOMEM);
    for (int64_t i = 0; i < m; i++) { /* evenly spaced */
        id[i] = (int64_t)((double)i * (double)n / (double)m);
        memcpy(own.x + i * t->d, t->features + id[i] * t->d, (size_t)t->d * sizeof *own.x);
        own.label[i] = t->label[id[i]];
        truth[i] = t->truth ? t->truth[id[i]] : -1;
        known += truth[i] != -1;
    }
    out->labeled = known == m || known >= KNOWN;
    TRY(t->images ? describe_store(t->images, id, m, c->host->threads, other.x)
                  : describe_ids(t->read, id, m, c->host->threads, other.x));
    TRY(conr_kmeans(c, other.x, m, other.d, &o, centroids, other.label, NULL));
    TRY(judge(c, &own, m, t->K, k, out->labeled ? truth : NULL, t->seed));
    TRY(judge(c, &other, m, t->K, k, out->labeled ? truth : NULL, t->seed));
    TRY(shared(&own, other.near, m, k, NULL, &out->training.confirmed));
    TRY(shared(&other, own.near, m, k, NULL, &out->descriptor.confirmed));
    out->images = m;
    out->descriptor_wins = baseline_wins(out);
    out->descriptor_confirmed = baseline_confirms(out);
done:
    space_free(&own), space_free(&other);
    free(id), free(truth), free(centroids);
    return rc;
}

static double mean_score(const conr_scores *s) { return (s->nmi + s->acc + s->ari) / 3; }

bool baseline_confirms(const conr_baseline *b) {
    return b->images &&
           b->training.confirmed < 0.9 * b->descriptor.confirmed; /* not if one is NaN */
}

bool baseline_wins(const conr_baseline *b) {
    if (b->images == 0) return false;
    if (b->labeled) return mean_score(&b->descriptor.scores) > mean_score(&b->training.scores);
    return baseline_confirms(b);
}

char *baseline_warning(const conr_baseline *b) {
    static const char remedy[] = "train longer, or cluster the descriptor instead";
    const conr_baseline_side *d = &b->descriptor, *t = &b->training;
    char *text = NULL;
    if (!baseline_wins(b)) return NULL;
    int n = b->labeled
                ? asprintf(&text,
                           "warning: the built-in descriptor's clusters are better than the "
                           "training's: NMI %.3f, ACC %.3f, ARI %.3f without any training, "
                           "against %.3f, %.3f, %.3f; %s",
                           d->scores.nmi, d->scores.acc, d->scores.ari, t->scores.nmi,
                           t->scores.acc, t->scores.ari, remedy)
                : asprintf(&text,
                           "warning: the built-in descriptor's clusters are better than the "
                           "training's: the training's features confirm them to %.3f, but its "
                           "own are confirmed by the descriptor only to %.3f; %s",
                           d->confirmed, t->confirmed, remedy);
    return n < 0 ? NULL : text;
}

/* Of one core of 2024, with a few hundred images up to a full sample. */
double baseline_seconds(int64_t n, int d, int K, int threads) {
    double m = (double)sample_size(n, K), wide = DESCRIBE_SIZE + d;
    double describing = 2e-4 * m, searching = 1e-10 * m * m * wide;
    double clustering = 1e-8 * m * wide * (K < 50 ? 50 : K);
    return (describing + searching + clustering) / threads;
}
