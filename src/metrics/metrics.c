/* metrics.c: NMI, ACC and ARI of a clustering against true classes, all from the confusion table:
 * how many samples each cluster shares with each class. */
#include "metrics/assignment.h"

#include "base/memory.h"
#include "base/status.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CELLS = 1 << 27 }; /* of the table, 1 GiB: with more, the labels are probably ids */

/* The distinct labels of one side, and the position of each among them. */
typedef struct labeling {
    int64_t *value; /* [count], ascending; owned */
    int64_t count;
    int64_t low;    /* value[0] */
    int32_t *place; /* [span]: position of low, low+1, ..; NULL if the range is too wide; owned */
} labeling;

static int by_value(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* The usual case, labels in a narrow range: no sorting.  span: largest - smallest + 1 */
static int mark_labels(const int64_t *labels, const int64_t *truth, int64_t n, int64_t span,
                       labeling *l) {
    l->place = calloc((size_t)span, sizeof *l->place);
    if (!l->place) return fail_memory("metrics", 4.0 * (double)span);
    for (int64_t i = 0; i < n; i++)
        if (truth[i] != -1) l->place[labels[i] - l->low] = 1;
    for (int64_t at = 0; at < span; at++) {
        if (!l->place[at]) continue;
        l->place[at] = (int32_t)l->count;
        l->value[l->count++] = l->low + at;
    }
    return 0;
}

/* Only of the samples whose true label is not -1; there is at least one. */
static int labeling_make(const int64_t *labels, const int64_t *truth, int64_t n, labeling *l) {
    int64_t kept = 0, high = INT64_MIN;
    uint64_t span;
    l->value = memory_new("metrics", (size_t)n, sizeof *l->value);
    if (!l->value) return CONR_ENOMEM;
    l->low = INT64_MAX;
    for (int64_t i = 0; i < n; i++) {
        if (truth[i] == -1) continue;
        l->value[kept++] = labels[i];
        if (labels[i] < l->low) l->low = labels[i];
        if (labels[i] > high) high = labels[i];
    }
    span = (uint64_t)high - (uint64_t)l->low; /* may exceed an int64 */
    if (span < 4 * (uint64_t)n + 1024) return mark_labels(labels, truth, n, (int64_t)span + 1, l);
    qsort(l->value, (size_t)kept, sizeof *l->value, by_value);
    for (int64_t i = 0; i < kept; i++)
        if (i == 0 || l->value[i] != l->value[i - 1]) l->value[l->count++] = l->value[i];
    return 0;
}

static int64_t position(const labeling *l, int64_t value) {
    if (l->place) return l->place[value - l->low];
    return (const int64_t *)bsearch(&value, l->value, (size_t)l->count, sizeof value, by_value) -
           l->value;
}

/* Fills count, clusters, classes, cluster, class_, n, unlabeled. */
static int count_all(const int64_t *truth, const int64_t *pred, int64_t n, conr_confusion *m) {
    int rc = 0;
    labeling cluster = {0}, class_ = {0};
    if (n < 1) return fail(CONR_EINVAL, "labels: there are none; give at least one");
    for (int64_t i = 0; i < n; i++) m->unlabeled += truth[i] == -1;
    m->n = n - m->unlabeled;
    if (m->n == 0)
        return fail(CONR_EINVAL, "labels: all %lld are -1 (unlabeled); give some true labels",
                    (long long)n);
    TRY(labeling_make(pred, truth, n, &cluster));
    TRY(labeling_make(truth, truth, n, &class_));
    if (cluster.count > MAX_CELLS / class_.count)
        TRY(fail(CONR_EINVAL, "labels: %lld clusters and %lld classes; are these ids, not labels?",
                 (long long)cluster.count, (long long)class_.count));
    m->clusters = (int)cluster.count, m->classes = (int)class_.count;
    m->count = calloc((size_t)m->clusters * m->classes, sizeof *m->count);
    TRY(m->count ? 0 : fail_memory("metrics", 8.0 * m->clusters * m->classes));
    for (int64_t i = 0; i < n; i++)
        if (truth[i] != -1)
            m->count[position(&cluster, pred[i]) * m->classes + position(&class_, truth[i])]++;
done:
    m->cluster = cluster.value, m->class_ = class_.value;
    free(cluster.place), free(class_.place);
    return rc;
}

int conr_confusion_make(const int64_t *truth, const int64_t *pred, int64_t n, conr_confusion *out) {
    int rc = 0;
    *out = (conr_confusion){0};
    TRY(count_all(truth, pred, n, out));
    out->match = memory_new("metrics", (size_t)out->clusters, sizeof *out->match);
    out->purity = memory_new("metrics", (size_t)out->clusters, sizeof *out->purity);
    TRY(out->match && out->purity ? 0 : CONR_ENOMEM);
    TRY(assignment_solve(out->count, out->clusters, out->classes, out->match, NULL));
    for (int c = 0; c < out->clusters; c++) {
        int64_t sum = 0, most = 0;
        for (int t = 0; t < out->classes; t++) {
            int64_t count = out->count[(size_t)c * out->classes + t];
            sum += count;
            if (count > most) most = count;
        }
        out->purity[c] = (double)most / (double)sum;
    }
done:
    if (rc < 0) conr_confusion_free(out);
    return rc;
}

void conr_confusion_free(conr_confusion *m) {
    free(m->cluster), free(m->class_), free(m->count), free(m->match), free(m->purity);
    *m = (conr_confusion){0};
}

/* Row and column sums of the table: *by_cluster [clusters] and *by_class [classes], in one block of
 * memory, freed through *by_cluster. */
static int margins(const conr_confusion *m, double **by_cluster, double **by_class) {
    *by_cluster = calloc((size_t)m->clusters + m->classes, sizeof **by_cluster);
    if (!*by_cluster) return fail_memory("metrics", 8.0 * (m->clusters + m->classes));
    *by_class = *by_cluster + m->clusters;
    for (int c = 0; c < m->clusters; c++)
        for (int t = 0; t < m->classes; t++) {
            (*by_cluster)[c] += (double)m->count[(size_t)c * m->classes + t];
            (*by_class)[t] += (double)m->count[(size_t)c * m->classes + t];
        }
    return 0;
}

static double entropy(const double *count, int k, double n) {
    double sum = 0;
    for (int i = 0; i < k; i++)
        if (count[i] > 0) sum -= count[i] / n * (log(count[i]) - log(n));
    return sum;
}

/* Normalized by the mean of the entropies.  As scikit-learn: 1 if both sides have one label only, 0
 * if they share no information. */
static double mutual_information(const conr_confusion *m, const double *by_cluster,
                                 const double *by_class) {
    double n = (double)m->n, sum = 0;
    if (m->clusters == 1 && m->classes == 1) return 1;
    for (int c = 0; c < m->clusters; c++)
        for (int t = 0; t < m->classes; t++) {
            double count = (double)m->count[(size_t)c * m->classes + t];
            if (count == 0) continue;
            double part = count / n * (log(count) - log(n)) +
                          count / n * (2 * log(n) - log(by_cluster[c]) - log(by_class[t]));
            if (fabs(part) >= DBL_EPSILON) sum += part;
        }
    double size = (entropy(by_cluster, m->clusters, n) + entropy(by_class, m->classes, n)) / 2;
    return sum > 0 && size > 0 ? sum / size : 0;
}

static double adjusted_rand(const conr_confusion *m, const double *by_cluster,
                            const double *by_class) {
    double n = (double)m->n, both = 0, cluster = 0, class_ = 0;
    for (size_t i = 0; i < (size_t)m->clusters * m->classes; i++)
        both += (double)m->count[i] * (double)m->count[i];
    for (int c = 0; c < m->clusters; c++) cluster += by_cluster[c] * by_cluster[c];
    for (int t = 0; t < m->classes; t++) class_ += by_class[t] * by_class[t];
    /* ordered pairs: together in both, only in the clusters, only in the classes, in neither */
    double in_both = both - n, in_clusters = cluster - both, in_classes = class_ - both;
    double in_neither = n * n - in_both - in_clusters - in_classes - n;
    if (in_clusters == 0 && in_classes == 0) return 1;
    return 2 * (in_both * in_neither - in_classes * in_clusters) /
           ((in_both + in_classes) * (in_classes + in_neither) +
            (in_both + in_clusters) * (in_clusters + in_neither));
}

int conr_metrics(const int64_t *truth, const int64_t *pred, int64_t n, conr_scores *out) {
    int rc = 0;
    conr_confusion m;
    double *by_cluster = NULL, *by_class = NULL;
    int64_t matched = 0;
    double recalls = 0;
    *out = (conr_scores){0};
    TRY(conr_confusion_make(truth, pred, n, &m));
    TRY(margins(&m, &by_cluster, &by_class));
    for (int c = 0; c < m.clusters; c++)
        if (m.match[c] >= 0) {
            int64_t count = m.count[(size_t)c * m.classes + m.match[c]];
            matched += count;
            recalls += (double)count / by_class[m.match[c]];
        }
    *out = (conr_scores){.nmi = mutual_information(&m, by_cluster, by_class),
                         .acc = (double)matched / (double)m.n,
                         .ari = adjusted_rand(&m, by_cluster, by_class),
                         .balanced_acc = recalls / m.classes,
                         .n = m.n,
                         .unlabeled = m.unlabeled,
                         .clusters = m.clusters,
                         .classes = m.classes};
done:
    free(by_cluster);
    conr_confusion_free(&m);
    return rc;
}
