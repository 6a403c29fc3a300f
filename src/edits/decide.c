/* decide.c: the decisions, as callers make them.  Each is written to the journal before the call
 * returns; one that cannot be written is not made. */
#include "edits/edits.h"

#include "base/memory.h"
#include "base/status.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static int refuse_reader(const conr_edits *e) {
    return e->writable ? 0
                       : fail(CONR_EINVAL,
                              "%s: its edits were opened for reading; open them for "
                              "writing",
                              e->run);
}

/* Makes a decision, which is taken over.  What was undone can then no longer be redone. */
static int decide(conr_edits *e, json_t *decision) {
    int rc = 0;
    size_t at = e->at;
    json_t *before = json_copy(e->list);
    TRY(refuse_reader(e));
    if (!before || !decision) TRY(fail_memory("edit", 1000));
    rc = edits_apply(e, decision);
    while (rc == 0 && json_array_size(e->list) > e->at)
        json_array_remove(e->list, json_array_size(e->list) - 1);
    if (rc == 0 && json_array_append(e->list, decision)) rc = fail_memory("edit", 1000);
    if (rc == 0) e->at++;
    if (rc == 0) rc = edits_write(e);
    if (rc < 0) { /* as it was, with the message of what failed */
        char why[1024];
        snprintf(why, sizeof why, "%s", conr_error());
        json_decref(e->list);
        e->list = json_incref(before);
        e->at = at;
        edits_replay(e);
        fail(rc, "%s", why);
    }
done:
    json_decref(before);
    json_decref(decision);
    return rc;
}

static int step(conr_edits *e, size_t at) {
    int rc = 0;
    size_t was = e->at;
    TRY(refuse_reader(e));
    e->at = at;
    rc = edits_replay(e);
    if (rc == 0) rc = edits_write(e);
    if (rc < 0) {
        char why[1024];
        snprintf(why, sizeof why, "%s", conr_error());
        e->at = was;
        edits_replay(e);
        fail(rc, "%s", why);
    }
done:
    return rc;
}

int conr_edits_undo(conr_edits *e) {
    if (e->at == 0) return fail(CONR_EINVAL, "undo: there is nothing to undo; decide something");
    return step(e, e->at - 1);
}

int conr_edits_redo(conr_edits *e) {
    if (e->at == json_array_size(e->list))
        return fail(CONR_EINVAL, "redo: nothing was undone; undo something first");
    return step(e, e->at + 1);
}

/* ---- names and merges ------------------------------------------------------------------------ */

int conr_edits_rename(conr_edits *e, int cluster, const char *name) {
    bool odd;
    json_t *text = json_text(name, &odd);
    if (!text && odd) return fail(CONR_EINVAL, "name: is not UTF-8; give text");
    return decide(e, json_pack("{ss si so}", "do", "rename", "cluster", cluster, "name", text));
}

int conr_edits_merge(conr_edits *e, const int *clusters, int count) {
    json_t *all = json_array();
    for (int j = 0; j < count; j++) all = json_push(all, json_integer(clusters[j]));
    return decide(e, all ? json_pack("{ss so}", "do", "merge", "clusters", all) : NULL);
}

/* ---- images ---------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The images as the text of a journal; repeated ones count once. */
static json_t *images_json(const int64_t *images, int64_t count) {
    int64_t *sorted = malloc(((size_t)count + 1) * sizeof *sorted), m = 0;
    if (!sorted) return NULL;
    if (count) memcpy(sorted, images, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_number);
    for (int64_t j = 0; j < count; j++)
        if (j == 0 || sorted[j] != sorted[m - 1]) sorted[m++] = sorted[j];
    char *text = ranges_text(sorted, m);
    json_t *out = text ? json_string(text) : NULL;
    free(text), free(sorted);
    return out;
}

int conr_edits_move(conr_edits *e, const int64_t *images, int64_t count, int to, const char *name) {
    json_t *which = images_json(images, count);
    json_t *d = which ? json_pack("{ss so si}", "do", "move", "images", which, "to", to) : NULL;
    if (name) d = json_put(d, "name", json_string(name));
    return decide(e, d);
}

int conr_edits_mark(conr_edits *e, const int64_t *images, int64_t count, int mark) {
    static const char *const words[] = {"none", "outlier", "wrong"};
    if (mark < 0 || mark > 2) return fail(CONR_EINVAL, "mark: %d is none; give 0, 1 or 2", mark);
    json_t *which = images_json(images, count);
    return decide(e, which
                         ? json_pack("{ss so ss}", "do", "mark", "images", which, "as", words[mark])
                         : NULL);
}

/* ---- k-means --------------------------------------------------------------------------------- */

/* The images of each of the k labels, as texts. */
static json_t *members_json(const int64_t *image, const int32_t *label, int64_t m, const int *order,
                            int k) {
    json_t *out = json_array();
    int64_t *list = malloc(((size_t)m + 1) * sizeof *list);
    for (int j = 0; list && j < k; j++) {
        int64_t count = 0;
        for (int64_t i = 0; i < m; i++)
            if (label[i] == order[j]) list[count++] = image[i];
        char *text = ranges_text(list, count);
        out = json_push(out, text ? json_string(text) : NULL);
        free(text);
    }
    if (!list) json_decref(out), out = NULL;
    free(list);
    return out;
}

/* k-means of the embeddings of some images. */
static int cluster_images(conr *c, conr_edits *e, const int64_t *image, int64_t m, int k,
                          uint64_t seed, int restarts, int32_t *label) {
    int rc = 0;
    const float *all;
    int64_t d;
    float *rows = NULL, *centroids = NULL;
    conr_kmeans_options o = conr_kmeans_defaults();
    o.clusters = k, o.seed = seed, o.restarts = restarts;
    TRY(conr_edits_features(e, &all, &d));
    centroids = memory_new("clusters", (size_t)k * (size_t)d, sizeof *centroids);
    if (m < e->n) rows = memory_new("features", (size_t)m * (size_t)d, sizeof *rows);
    if (!centroids || (m < e->n && !rows)) TRY(CONR_ENOMEM);
    for (int64_t i = 0; rows && i < m; i++)
        memcpy(rows + (size_t)i * (size_t)d, all + (size_t)image[i] * (size_t)d,
               (size_t)d * sizeof *rows);
    TRY(conr_kmeans(c, rows ? rows : all, m, d, &o, centroids, label, NULL));
done:
    free(rows), free(centroids);
    return rc;
}

/* Labels 0 .. k-1 by falling size, equal ones by their first image; those without an image are left
 * out, and *k is lowered. */
static int *by_size(const int32_t *label, int64_t m, int *k) {
    int64_t *size = calloc((size_t)*k + 1, sizeof *size);
    int *order = calloc((size_t)*k + 1, sizeof *order), count = 0;
    for (int64_t i = 0; size && order && i < m; i++)
        if (!size[label[i]]++) order[count++] = label[i];
    for (int j = 1; j < count; j++) {
        int now = order[j], at = j;
        for (; at > 0 && size[order[at - 1]] < size[now]; at--) order[at] = order[at - 1];
        order[at] = now;
    }
    *k = count;
    if (!size) free(order), order = NULL;
    free(size);
    return order;
}

int conr_edits_split(conr *c, conr_edits *e, int cluster, int k, uint64_t seed) {
    int rc = 0, *order = NULL;
    int64_t m = 0;
    int64_t *image = memory_new("split", (size_t)e->n, sizeof *image);
    int32_t *label = memory_new("split", (size_t)e->n, sizeof *label);
    json_t *into = NULL, *members = NULL;
    TRY(image && label ? 0 : CONR_ENOMEM);
    TRY(refuse_reader(e));
    for (int64_t i = 0; i < e->n; i++)
        if (e->label[i] == cluster) image[m++] = i;
    if (k < 2 || k > 100 || k > m)
        TRY(fail(CONR_EINVAL,
                 "split: %d pieces of a cluster of %lld images; give 2 to 100, and not more than "
                 "it has",
                 k, (long long)m));
    TRY(cluster_images(c, e, image, m, k, seed, 10, label));
    if (!(order = by_size(label, m, &k))) TRY(fail_memory("split", 8.0 * k));
    if (k < 2)
        TRY(fail(CONR_EINVAL, "split: the images of this cluster do not differ; leave it whole"));
    into = json_array();
    for (int j = 0; j < k; j++) into = json_push(into, json_integer(j ? e->next + j - 1 : cluster));
    members = members_json(image, label, m, order, k);
    if (!into || !members) TRY(fail_memory("split", (double)m));
    rc = decide(e, json_pack("{ss si sO sO}", "do", "split", "cluster", cluster, "into", into,
                             "members", members));
done:
    json_decref(into), json_decref(members);
    free(order), free(image), free(label);
    return rc;
}

/* The number of each new cluster: that of the one it shares most images with, largest share first,
 * so that names stay with what they name; else the next free one. */
static int *numbers_by_overlap(const conr_edits *e, const int32_t *label, const int *order, int k) {
    size_t next = (size_t)e->next;
    int64_t *shared = calloc((size_t)k * next + 1, sizeof *shared);
    int *number = calloc((size_t)k + 1, sizeof *number),
        *place = calloc((size_t)k + 1, sizeof *place);
    bool *used = calloc(next + 1, sizeof *used);
    int most = 0;
    for (int j = 0; j < k; j++)
        if (order[j] > most) most = order[j];
    int *row = calloc((size_t)most + 1, sizeof *row);
    bool ok = shared && number && place && used && row;
    for (int j = 0; ok && j < k; j++) row[order[j]] = j, number[j] = -1;
    for (int64_t i = 0; ok && i < e->n; i++)
        shared[(size_t)row[label[i]] * next + (size_t)e->cluster[i]]++;
    for (int round = 0; ok && round < k; round++) {
        int64_t best = 0;
        int at = -1, with = -1;
        for (int j = 0; j < k; j++)
            for (int o = 0; o < e->next && number[j] < 0; o++)
                if (!used[o] && shared[(size_t)j * next + (size_t)o] > best)
                    best = shared[(size_t)j * next + (size_t)o], at = j, with = o;
        if (at < 0) break;
        number[at] = with, used[with] = true;
    }
    int fresh = e->next;
    for (int j = 0; ok && j < k; j++)
        if (number[j] < 0) number[j] = fresh++;
    if (!ok) free(number), number = NULL;
    free(shared), free(place), free(used), free(row);
    return number;
}

/* apply_pieces reads numbers in order, and new ones must come ascending. */
static void sort_numbers(int *number, int *order, int k) {
    for (int a = 1; a < k; a++)
        for (int b = a; b > 0 && number[b - 1] > number[b]; b--) {
            int n = number[b], o = order[b];
            number[b] = number[b - 1], order[b] = order[b - 1];
            number[b - 1] = n, order[b - 1] = o;
        }
}

int conr_edits_clusters(conr *c, conr_edits *e, int K, uint64_t seed) {
    int rc = 0, *order = NULL, *number = NULL, k = K;
    int64_t *image = memory_new("clusters", (size_t)e->n, sizeof *image);
    int32_t *label = memory_new("clusters", (size_t)e->n, sizeof *label);
    json_t *into = NULL, *members = NULL;
    TRY(image && label ? 0 : CONR_ENOMEM);
    TRY(refuse_reader(e));
    if (K < 2 || K > 1000 || K > e->n)
        TRY(fail(CONR_EINVAL,
                 "clusters: %d for %lld images; give 2 to 1000, and not more than "
                 "there are images",
                 K, (long long)e->n));
    for (int64_t i = 0; i < e->n; i++) image[i] = i;
    TRY(cluster_images(c, e, image, e->n, K, seed, 3, label));
    if (!(order = by_size(label, e->n, &k)) || !(number = numbers_by_overlap(e, label, order, k)))
        TRY(fail_memory("clusters", 8.0 * K));
    sort_numbers(number, order, k);
    into = json_array();
    for (int j = 0; j < k; j++) into = json_push(into, json_integer(number[j]));
    members = members_json(image, label, e->n, order, k);
    if (!into || !members) TRY(fail_memory("clusters", (double)e->n));
    rc = decide(
        e, json_pack("{ss si sO sO}", "do", "clusters", "K", K, "into", into, "members", members));
done:
    json_decref(into), json_decref(members);
    free(order), free(number), free(image), free(label);
    return rc;
}
