/* clustering.c: the clusters of a finished run, for rows and images that it has not seen.
 *
 * Images become features by the model, the descriptor or a pretrained encoder, features go through the head, and rows
 * get the nearest centroid, or the vote of their nearest rows if the clusters are those of a
 * graph. */
#include "base/checksum.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/npy.h"
#include "base/status.h"
#include "context/context.h"
#include "edits/edits.h"
#include "kernels/rows.h"
#include "run/features.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct conr_clustering {
    features_options o; /* of a training: method and takes, the rest defaults */
    bool of_features;
    conr_model *model;     /* if it takes images through it */
    conr_encoder *encoder; /* likewise, once it was needed */
    conr_head *head;       /* NULL: none */
    float *centroids;      /* [K,width] */
    int64_t K, width;
    int64_t takes;  /* features per row that go into the head, or are clustered */
    int64_t n;      /* rows that were clustered; 0: a training, which did not say */
    float *rows;    /* [n,width], of a graph */
    int32_t *label; /* [n], of a graph */
    /* of a run that was edited: */
    conr_edits *edits; /* else NULL */
    int32_t *owner;    /* [K] the edited cluster of each row of centroids, which are then parts */
};

/* ---- opening --------------------------------------------------------------------------------- */

/* What the votes of a graph need. */
static int open_rows(const char *run, conr_clustering *m) {
    int rc = 0;
    char path[4096];
    int64_t *wide = NULL, n = 0, d = 0;
    TRY(checksum_check(run, "embeddings.npy", "DONE"));
    snprintf(path, sizeof path, "%s/embeddings.npy", run);
    TRY(npy_read_features(path, &m->rows, &m->n, &d));
    snprintf(path, sizeof path, "%s/%s", run, edits_base(run));
    TRY(conr_read_labels(path, "cluster", &wide, &n));
    if (n != m->n || d != m->width)
        TRY(fail(CONR_EFORMAT,
                 "%s: embeddings.npy has %lld x %lld values for %lld rows of %lld; "
                 "repeat the run",
                 run, (long long)m->n, (long long)d, (long long)n, (long long)m->width));
    m->label = memory_new("labels", (size_t)n, sizeof *m->label);
    TRY(m->label ? 0 : CONR_ENOMEM);
    for (int64_t i = 0; i < n; i++) {
        if (wide[i] < 0 || wide[i] >= m->K)
            TRY(fail(CONR_EFORMAT, "%s: row %lld is in cluster %lld of %lld; repeat the run", path,
                     (long long)i, (long long)wide[i], (long long)m->K));
        m->label[i] = (int32_t)wide[i];
    }
done:
    conr_free(wide);
    return rc;
}

/* The model and its centroids. */
static int open_model(conr *c, const char *run, conr_clustering *m) {
    int rc = 0;
    conr_model_info about;
    TRY(conr_model_open(c, run, &m->model));
    conr_model_about(m->model, &about);
    if (!about.centroids)
        TRY(fail(CONR_EFILE, "%s: no centroids next to the model; give a run folder", run));
    m->o.columns = about.features;
done:
    return rc;
}

/* What a person decided: parts in place of centroids; the rows of a graph vote for the edited
 * clusters, and marked ones do not vote. */
static int open_edits(const char *run, conr_clustering *m) {
    int rc = 0, P = 0;
    float *parts = NULL;
    const float *rows;
    int64_t d;
    TRY(edits_of_run(run, &m->edits));
    if (!m->edits) return 0;
    if (m->edits->K > m->K)
        TRY(fail(CONR_EFORMAT, "%s: %lld centroids for %d clusters; repeat the run", run,
                 (long long)m->K, m->edits->K));
    TRY(conr_edits_features(m->edits, &rows, &d));
    if (d != m->width)
        TRY(fail(CONR_EFORMAT, "%s: embeddings of %lld elements, centroids of %lld; repeat the run",
                 run, (long long)d, (long long)m->width));
    if (m->rows) {
        int64_t kept = 0;
        for (int64_t i = 0; i < m->n; i++) {
            if (m->edits->label[i] < 0) continue;
            memmove(m->rows + kept * d, m->rows + i * d, (size_t)d * sizeof *m->rows);
            m->label[kept++] = m->edits->label[i];
        }
        if (kept == 0)
            TRY(fail(CONR_EINVAL, "%s: every image is marked as outlier or wrong; undo some", run));
        m->n = kept;
    }
    TRY(edits_parts(m->edits, m->centroids, rows, d, &parts, &m->owner, &P));
    free(m->centroids);
    m->centroids = parts, m->K = P;
done:
    return rc;
}

static int open_parts(conr *c, const char *run, conr_clustering *m) {
    int rc = 0;
    char path[4096];
    if (!strcmp(m->o.takes, "model")) TRY(open_model(c, run, m));
    int64_t takes = m->o.columns, width = takes;
    snprintf(path, sizeof path, "%s/centroids.npy", run);
    TRY(checksum_check(run, "centroids.npy", "DONE"));
    TRY(npy_read_features(path, &m->centroids, &m->K, &m->width));
    if (!strcmp(m->o.refine, "conaff")) {
        snprintf(path, sizeof path, "%s/head.safetensors", run);
        TRY(conr_head_open(c, path, &m->head));
        conr_head_about(m->head, &takes, &width);
    }
    if (m->K > INT_MAX || width != m->width)
        TRY(fail(CONR_EFORMAT,
                 "%s: centroids of %lld elements, rows of %lld; they belong to different runs", run,
                 (long long)m->width, (long long)width));
    m->takes = takes;
    m->n = m->o.rows;
    if (!strcmp(m->o.method, "graph")) TRY(open_rows(run, m));
    TRY(open_edits(run, m));
done:
    return rc;
}

int conr_clustering_open(conr *c, const char *run, conr_clustering **out) {
    int rc = 0;
    char options[4096], done[4096];
    conr_clustering *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return fail_memory("clusters", sizeof *m);
    snprintf(options, sizeof options, "%s/options.yaml", run);
    snprintf(done, sizeof done, "%s/DONE", run);
    features_default(&m->o);
    TRY(checksum_check(run, "options.yaml", "DONE"));
    if (!file_is_gone(options)) TRY(features_read(&m->o, options)); /* a bare model has none */
    m->of_features = rc == 1;
    if (m->of_features && file_is_gone(done))
        TRY(fail(CONR_EFILE, "%s: is not finished; repeat the command that made it", run));
    if (!m->of_features) snprintf(m->o.takes, sizeof m->o.takes, "model");
    TRY(open_parts(c, run, m));
    *out = m;
done:
    if (rc < 0) conr_clustering_close(m);
    return rc;
}

void conr_clustering_close(conr_clustering *m) {
    if (!m) return;
    conr_model_close(m->model);
    conr_encoder_close(m->encoder);
    conr_head_close(m->head);
    free(m->centroids), free(m->rows), free(m->label), free(m->owner);
    conr_edits_close(m->edits);
    free(m);
}

void conr_clustering_about(const conr_clustering *m, conr_clustering_info *out) {
    *out = (conr_clustering_info){.takes = m->o.takes,
                                  .method = m->o.method,
                                  .refine = m->o.refine,
                                  .from = m->o.from,
                                  .n = m->n,
                                  .d = m->takes,
                                  .width = m->width,
                                  .clusters = m->edits ? m->edits->next : (int)m->K};
}

const char *conr_clustering_name(const conr_clustering *m, int cluster) {
    return m->edits ? conr_edits_name(m->edits, cluster) : NULL;
}

int conr_clustering_setting(const conr_clustering *m, int i, const char **key, const char **value) {
    static _Thread_local char text[OPTION_TEXT_SIZE];
    char initial[OPTION_TEXT_SIZE];
    const option *about;
    if (!m->of_features || !features_at(&m->o, i, &about, text, initial)) return 0;
    *key = about->key, *value = text;
    return 1;
}

/* ---- new rows -------------------------------------------------------------------------------- */

int conr_clustering_embed(conr *c, const conr_clustering *m, const float *features, int64_t n,
                          int64_t d, float *out) {
    if (d != m->takes)
        return fail(CONR_EINVAL,
                    "features: %lld per row, but the run takes %lld; give features of "
                    "the same kind",
                    (long long)d, (long long)m->takes);
    if (n < 1 || n > INT_MAX)
        return fail(CONR_EINVAL, "features: %lld rows are out of range; give some", (long long)n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < d; j++)
            if (!isfinite(features[i * d + j]))
                return fail(CONR_ENUMBER,
                            "features: row %lld has a value that is NaN or infinite; repair it",
                            (long long)i);
    if (m->head) return conr_head_apply(c, m->head, features, n, d, out);
    rows_normalize(c->host->threads, features, (int)n, (int)d, out, NULL);
    return 0;
}

int conr_clustering_set_encoder(conr_clustering *m, const char *path) {
    if (strcmp(m->o.takes, "encoder"))
        return fail(CONR_EINVAL,
                    "encoder %s: the run was not made with a pretrained network; leave it out",
                    path);
    if (strlen(path) >= sizeof m->o.encoder)
        return fail(CONR_EINVAL, "encoder %s: the path is too long; give a shorter one", path);
    snprintf(m->o.encoder, sizeof m->o.encoder, "%s", path);
    return 0;
}

/* The network that the run was made with, prepared as then. */
static int open_encoder(conr *c, conr_clustering *m) {
    enum { SETTINGS = 16 };
    int rc = 0, n = 0;
    char text[OPTION_TEXT_SIZE], sum[32], *rest;
    const char *set[SETTINGS + 1] = {NULL};
    conr_encoder_info e;
    if (m->encoder) return 0;
    if (file_is_gone(m->o.encoder))
        TRY(fail(CONR_EFILE,
                 "%s: the weights that the run was made with are gone; give them with --encoder "
                 "W.safetensors",
                 m->o.encoder));
    snprintf(text, sizeof text, "%s", m->o.encoder_set);
    for (char *at = strtok_r(text, " ", &rest); at && n < SETTINGS; at = strtok_r(NULL, " ", &rest))
        set[n++] = at;
    TRY(conr_encoder_open(c, m->o.encoder, set, &m->encoder));
    conr_encoder_about(m->encoder, &e);
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)e.checksum);
    if (strcmp(sum, m->o.encoder_sum)) {
        conr_encoder_close(m->encoder);
        m->encoder = NULL;
        TRY(fail(CONR_EFORMAT,
                 "%s: is not the file that the run was made with (checksum %s, not %s); give that "
                 "one with --encoder W.safetensors",
                 m->o.encoder, sum, m->o.encoder_sum));
    }
done:
    return rc;
}

int conr_clustering_images(conr *c, conr_clustering *m, conr_images *images, float **out,
                           int64_t *n) {
    int rc = 0;
    float *x = NULL;
    int64_t d = 0;
    *out = NULL;
    if (!strcmp(m->o.takes, "features"))
        return fail(CONR_EINVAL, "images: the run was made from features of another program; give "
                                 "the features of the images, as a .npy file");
    if (!strcmp(m->o.takes, "encoder")) TRY(open_encoder(c, m));
    TRY(m->model     ? conr_embed(c, m->model, images, &x, n, &d)
        : m->encoder ? conr_encode(c, m->encoder, images, &x, n, &d)
                     : conr_describe(c, images, &x, n, &d));
    if (m->model && !m->head) { /* unit rows already */
        *out = x, x = NULL;
        goto done;
    }
    *out = memory_new("features", (size_t)*n * (size_t)m->width, sizeof **out);
    TRY(*out ? 0 : CONR_ENOMEM);
    TRY(conr_clustering_embed(c, m, x, *n, d, *out));
done:
    conr_free(x);
    if (rc < 0) free(*out), *out = NULL;
    return rc;
}

/* Of edited clusters: the nearest part decides, of a graph the vote of the nearest rows; distance
 * and boundary are those of the nearest part of the own cluster and of all others. */
static int assign_edited(conr *c, const conr_clustering *m, const float *rows, int64_t n,
                         int32_t *labels, float *distances, float *boundary) {
    int rc = 0;
    size_t d = (size_t)m->width;
    if (m->rows)
        TRY(conr_graph_assign(c, m->rows, m->label, m->n, m->width, m->edits->next, rows, n,
                              labels));
#pragma omp parallel for num_threads(c->host->threads)
    for (int64_t i = 0; i < n; i++) {
        const float *x = rows + (size_t)i * d;
        double own[2] = {INFINITY, INFINITY}, other = INFINITY; /* 1 - cos; squared distances */
        for (int turn = m->rows ? 1 : 0; turn < 2; turn++)      /* first the label, then the rest */
            for (int64_t p = 0; p < m->K; p++) {
                const float *k = m->centroids + (size_t)p * d;
                double dot = 0, a = 0, b = 0;
                for (size_t j = 0; j < d; j++)
                    dot += (double)x[j] * k[j], a += (double)x[j] * x[j], b += (double)k[j] * k[j];
                double apart = a > 0 && b > 0 ? 1 - dot / sqrt(a * b) : 1;
                double square = a > 0 ? 1 - 2 * dot / sqrt(a) + b : b;
                if (turn == 0) {
                    if (apart < own[0]) own[0] = apart, labels[i] = m->owner[p];
                } else if (m->owner[p] == labels[i]) {
                    own[0] = fmin(own[0], apart), own[1] = fmin(own[1], square);
                } else {
                    other = fmin(other, square);
                }
            }
        double in = sqrt(fmax(own[1], 0)), out = sqrt(fmax(other, 0)), most = fmax(in, out);
        distances[i] = (float)(isfinite(own[0]) ? own[0] : 1);
        boundary[i] = (float)(isfinite(most) && most > 0 ? 1 - (out - in) / most : 0);
    }
done:
    return rc;
}

int conr_clustering_assign(conr *c, const conr_clustering *m, const float *rows, int64_t n,
                           int32_t *labels, float *distances, float *boundary) {
    int rc = 0, K = (int)m->K;
    if (m->edits) return assign_edited(c, m, rows, n, labels, distances, boundary);
    if (m->rows) {
        TRY(conr_graph_assign(c, m->rows, m->label, m->n, m->width, K, rows, n, labels));
        features_distances(rows, n, m->width, m->centroids, labels, distances);
    } else {
        TRY(conr_assign(c, rows, n, m->width, CONR_COSINE, m->centroids, K, labels, distances));
    }
    TRY(conr_boundary(c, rows, n, m->width, CONR_COSINE, m->centroids, K, labels, 0, boundary));
done:
    return rc;
}
