/* refine_test.c: conr_refine on made features: what it gains, what it refuses, odd shapes, threads,
 * stopping, files. */
#include "refine/refine.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/tensors.h"
#include "base/test_help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static conr *cpu;

/* Rows of K kinds in d dimensions around centers of their own, sd of the noise. */
static float *blobs(int n, int d, int K, double sd) {
    float *x = memory_new("blobs", (size_t)n * (size_t)d, sizeof *x);
    for (int i = 0; i < n; i++) {
        rng own = rng_at(7, 1, (uint32_t)i, RNG_TEST),
            kind = rng_at(7, 0, (uint32_t)(i % K), RNG_TEST);
        for (int j = 0; j < d; j++)
            x[i * d + j] = (float)(rng_normal(&kind) + sd * rng_normal(&own));
    }
    return x;
}

static conr_refine_options small(int K) {
    conr_refine_options o = conr_refine_defaults();
    o.clusters = K, o.hidden = 64, o.width = 16, o.batch = 32, o.epochs = 3;
    return o;
}

/* Refined features of all rows, freed by the caller. */
static float *refined(conr *c, const float *x, int n, int d, const conr_refine_options *o) {
    conr_head *h;
    int64_t in, width;
    assert_ok(conr_refine(c, x, n, d, o, &h));
    conr_head_about(h, &in, &width);
    assert_int_equal(in, d);
    assert_int_equal(width, o->width);
    float *z = memory_new("refined", (size_t)n * (size_t)width, sizeof *z);
    assert_ok(conr_head_apply(c, h, x, n, d, z));
    for (int i = 0; i < n; i++) {
        double square = 0;
        for (int j = 0; j < width; j++) square += (double)z[i * width + j] * z[i * width + j];
        if (square != 0) assert_float_equal(square, 1, 1e-5);
    }
    conr_head_close(h);
    return z;
}

/* NMI of k-means on features with the kinds of blobs. */
static double nmi(const float *x, int n, int d, int K) {
    conr_kmeans_options o = conr_kmeans_defaults();
    conr_scores scores;
    float *centroids = memory_new("centroids", (size_t)K * (size_t)d, sizeof *centroids);
    int32_t *label = memory_new("labels", (size_t)n, sizeof *label);
    int64_t *truth = memory_new("labels", (size_t)n, sizeof *truth), *pred = malloc(8 * (size_t)n);
    o.clusters = K;
    assert_ok(conr_kmeans(cpu, x, n, d, &o, centroids, label, NULL));
    for (int i = 0; i < n; i++) truth[i] = i % K, pred[i] = label[i];
    assert_ok(conr_metrics(truth, pred, n, &scores));
    free(centroids), free(label), free(truth), free(pred);
    return scores.nmi;
}

/* Clusters that lie in components of small variance, beside large ones without meaning: k-means
 * fails on them, the head finds them, with any device. */
static void test_gains(void **state) {
    enum { N = 240, D = 24, K = 4 };
    (void)state;
    float *x = blobs(N, D, K, 0.5);
    for (int i = 0; i < N; i++) {
        rng r = rng_at(9, 0, (uint32_t)i, RNG_TEST);
        for (int j = 0; j < 2; j++) x[i * D + j] = (float)(4 * rng_normal(&r));
    }
    double before = nmi(x, N, D, K);
    const char *const devices[] = {"ref", "cpu"};
    for (int i = 0; i < 2; i++) {
        conr *c;
        conr_refine_options o = small(K);
        assert_ok(conr_open(devices[i], 1, &c));
        float *z = refined(c, x, N, D, &o);
        double after = nmi(z, N, o.width, K);
        if (!(before < 0.5 && after > 0.95))
            fail_msg("%s: NMI %g -> %g", devices[i], before, after);
        free(z);
        conr_close(c);
    }
    free(x);
}

static void test_threads(void **state) {
    enum { N = 300, D = 40 };
    (void)state;
    float *x = blobs(N, D, 5, 1), *z[2];
    for (int i = 0; i < 2; i++) {
        conr *c;
        conr_refine_options o = small(5);
        assert_ok(conr_open("cpu", i ? 3 : 1, &c));
        z[i] = refined(c, x, N, D, &o);
        conr_close(c);
    }
    assert_memory_equal(z[0], z[1], (size_t)N * 16 * sizeof(float));
    free(x), free(z[0]), free(z[1]);
}

static void test_seed(void **state) {
    enum { N = 100, D = 8 };
    (void)state;
    float *x = blobs(N, D, 5, 1);
    conr_refine_options o = small(5);
    float *a = refined(cpu, x, N, D, &o);
    o.seed = 2;
    float *b = refined(cpu, x, N, D, &o);
    assert_true(relative_error(a, b, (size_t)N * 16) > 1e-3);
    free(x), free(a), free(b);
}

/* Unless the width is given, as many features come out as enter: of K clusters, K-1 discriminants, or
 * all components. */
static void test_width(void **state) {
    enum { N = 120, D = 12, K = 4 };
    (void)state;
    conr_head *h;
    int64_t in, width;
    float *x = blobs(N, D, K, 0.3);
    conr_refine_options o = small(K);
    o.width = 0;
    assert_ok(conr_refine(cpu, x, N, D, &o, &h));
    conr_head_about(h, &in, &width);
    assert_int_equal(in, D);
    assert_true(width == K - 1 || width == D);
    conr_head_close(h);
    o.clusters = 0;
    assert_ok(conr_refine(cpu, x, N, D, &o, &h));
    conr_head_about(h, &in, &width);
    assert_int_equal(width, D);
    conr_head_close(h);
    free(x);
}

/* A row's refined features do not depend on the rows it comes with, and unseen rows near a seen one
 * land near it. */
static void test_unseen(void **state) {
    enum { N = 200, D = 12 };
    (void)state;
    conr_head *h;
    conr_refine_options o = small(4);
    float *x = blobs(N, D, 4, 0.5), all[N * 16], one[16], moved[D];
    assert_ok(conr_refine(cpu, x, N, D, &o, &h));
    assert_ok(conr_head_apply(cpu, h, x, N, D, all));
    for (int i = 0; i < N; i += 37) {
        assert_ok(conr_head_apply(cpu, h, x + i * D, 1, D, one));
        assert_close("one row", one, all + i * 16, 16, 1e-5);
        for (int j = 0; j < D; j++) moved[j] = x[i * D + j] * 1000 + (j == 0);
        assert_ok(conr_head_apply(cpu, h, moved, 1, D, one));
        assert_close("longer row", one, all + i * 16, 16, 0.02);
    }
    for (int j = 0; j < D; j++) moved[j] = j % 2 ? 3e38f : -3e38f; /* far from all of them */
    assert_ok(conr_head_apply(cpu, h, moved, 1, D, one));
    for (int j = 0; j < 16; j++) assert_true(isfinite(one[j]));
    assert_fails(CONR_EINVAL, "rows of 3, but the head was trained on rows of 12",
                 conr_head_apply(cpu, h, x, 1, 3, one));
    x[5] = NAN;
    assert_fails(CONR_ENUMBER, "row 0", conr_head_apply(cpu, h, x, 1, D, one));
    conr_head_close(h);
    free(x);
}

/* Shapes and values that leave little to learn give finite unit rows, or zero ones. */
static void check_odd(const char *what, float *x, int n, int d, int K) {
    conr_refine_options o = small(K);
    float *z = refined(cpu, x, n, d, &o);
    for (int i = 0; i < n * o.width; i++)
        if (!isfinite(z[i])) fail_msg("%s: row %d is not finite", what, i / o.width);
    free(z), free(x);
}

static float *filled(int n, int d, float value) {
    float *x = memory_new("rows", (size_t)n * (size_t)d, sizeof *x);
    for (int i = 0; i < n * d; i++) x[i] = value;
    return x;
}

static float *scaled(float by) {
    float *x = blobs(60, 6, 3, 0.3);
    for (int i = 0; i < 360; i++) x[i] *= by;
    return x;
}

static void test_odd(void **state) {
    (void)state;
    check_odd("two rows", blobs(2, 3, 2, 1), 2, 3, 2);
    check_odd("five rows", blobs(5, 3, 2, 1), 5, 3, 2);
    check_odd("fewer rows than a batch", blobs(20, 4, 2, 1), 20, 4, 2);
    check_odd("rows that do not fill a batch", blobs(45, 4, 2, 1), 45, 4, 2);
    check_odd("one cluster", blobs(40, 4, 2, 1), 40, 4, 1);
    check_odd("no filter", blobs(40, 4, 2, 1), 40, 4, 0);
    check_odd("a cluster per row", blobs(40, 4, 2, 1), 40, 4, 40);
    check_odd("one feature", blobs(50, 1, 2, 1), 50, 1, 2);
    check_odd("wide rows", blobs(40, 300, 2, 1), 40, 300, 2);
    check_odd("constant", filled(40, 5, 3), 40, 5, 2);
    check_odd("zero", filled(40, 5, 0), 40, 5, 2);
    check_odd("largest", filled(40, 5, 3e38f), 40, 5, 2);
    check_odd("duplicates", blobs(60, 5, 3, 0), 60, 5, 3);
    check_odd("huge", scaled(1e37f), 60, 6, 3);
    check_odd("tiny", scaled(1e-37f), 60, 6, 3);
}

/* Rows enter as unit rows, so their scale does not matter. */
static void test_scale(void **state) {
    (void)state;
    conr_refine_options o = small(3);
    float *x = scaled(1), *huge = scaled(0x1p100f), *tiny = scaled(0x1p-100f);
    float *z = refined(cpu, x, 60, 6, &o), *a = refined(cpu, huge, 60, 6, &o),
          *b = refined(cpu, tiny, 60, 6, &o);
    assert_close("huge", a, z, 60 * 16, 1e-4);
    assert_close("tiny", b, z, 60 * 16, 1e-4);
    free(x), free(huge), free(tiny), free(z), free(a), free(b);
}

static void test_refused(void **state) {
    (void)state;
    conr_head *h;
    float *x = blobs(20, 3, 2, 1);
    conr_refine_options o = small(2);
#define REFUSED(text, change)                                                                      \
    do {                                                                                           \
        o = small(2);                                                                              \
        change;                                                                                    \
        assert_fails(CONR_EINVAL, text, conr_refine(cpu, x, 20, 3, &o, &h));                       \
        assert_null(h);                                                                            \
    } while (0)
    REFUSED("clusters is 21", o.clusters = 21);
    REFUSED("clusters is -1", o.clusters = -1);
    REFUSED("epochs is -1", o.epochs = -1);
    REFUSED("batch is 1", o.batch = 1);
    REFUSED("hidden is 0", o.hidden = 0);
    REFUSED("width is -1", o.width = -1);
    REFUSED("dropout is 1", o.dropout = 1);
    REFUSED("average is 2", o.average = 2);
    REFUSED("lr is nan", o.lr = NAN);
    REFUSED("keep is -1", o.keep = -1);
    REFUSED("k: 0 neighbors", o.neighbors.k = 0);
    o = small(2);
    assert_fails(CONR_EINVAL, "one row", conr_refine(cpu, x, 1, 3, &o, &h));
    x[4] = NAN;
    assert_fails(CONR_ENUMBER, "row 1", conr_refine(cpu, x, 20, 3, &o, &h));
    x[4] = INFINITY;
    assert_fails(CONR_ENUMBER, "row 1", conr_refine(cpu, x, 20, 3, &o, &h));
    free(x);
}

/* ---- progress -------------------------------------------------------------------------------- */

typedef struct watch {
    const char *stop; /* at this stage */
    int64_t after;    /* when so much is done */
    int reports;
} watch;

static int on_progress(const conr_progress *p, void *user) {
    watch *w = user;
    w->reports += !strcmp(p->stage, "refining");
    return w->stop && !strcmp(p->stage, w->stop) && p->done >= w->after;
}

static void test_stops(void **state) {
    (void)state;
    conr_head *h;
    float *x = blobs(100, 6, 2, 1);
    conr_refine_options o = small(2);
    watch w = {0};
    conr_set_progress(cpu, on_progress, &w);
    assert_ok(conr_refine(cpu, x, 100, 6, &o, &h));
    conr_head_close(h);
    assert_int_equal(w.reports, 9); /* three epochs of three steps */
    const watch stops[] = {{"components", 0, 0}, {"refining", 0, 0}, {"refining", 5, 0}};
    for (int i = 0; i < 3; i++) {
        w = stops[i];
        assert_int_equal(conr_refine(cpu, x, 100, 6, &o, &h), CONR_ESTOPPED);
        assert_null(h);
        assert_int_equal(w.reports, i == 2 ? 6 : i);
    }
    conr_set_progress(cpu, NULL, NULL);
    free(x);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void test_file(void **state) {
    enum { N = 80, D = 5 };
    (void)state;
    conr_head *h, *again;
    conr_refine_options o = small(0); /* so that all components enter, and shapes are known */
    float *x = blobs(N, D, 3, 1), a[N * 16], b[N * 16];
    const char *path = temporary_path("head.safetensors");
    assert_ok(conr_refine(cpu, x, N, D, &o, &h));
    assert_ok(conr_head_save(h, path));
    assert_ok(conr_head_open(cpu, path, &again));
    assert_ok(conr_head_apply(cpu, h, x, N, D, a));
    assert_ok(conr_head_apply(cpu, again, x, N, D, b));
    assert_memory_equal(a, b, sizeof a);
    conr_head_close(h), conr_head_close(again);
    free(x);
}

/* The tensors of a good file, with one changed. */
static const char *changed(const char *name, int n_dims, int64_t rows, int64_t columns,
                           float value) {
    static float data[1 << 14];
    tensors f;
    tensor list[32];
    const char *path = temporary_path("changed.safetensors");
    assert_ok(tensors_open(temporary_path("head.safetensors"), &f));
    memcpy(list, f.tensor, (size_t)f.n * sizeof *list);
    for (int i = 0; i < f.n; i++) {
        if (strcmp(list[i].name, name)) continue;
        list[i].n_dims = n_dims, list[i].dim[0] = rows, list[i].dim[1] = columns;
        list[i].count = (size_t)(rows * (n_dims > 1 ? columns : 1));
        for (size_t k = 0; k < list[i].count; k++) data[k] = value;
        list[i].data = data;
    }
    tensor_note note = {"format", tensors_note(&f, "format")};
    assert_ok(tensors_write(path, list, f.n, &note, 1));
    tensors_close(&f);
    return path;
}

static void test_hostile_files(void **state) {
    (void)state;
    conr_head *h;
#define HOSTILE(code, text, ...)                                                                   \
    assert_fails(code, text, conr_head_open(cpu, changed(__VA_ARGS__), &h)), assert_null(h)
    assert_ok(conr_head_open(cpu, changed("none", 1, 1, 1, 0), &h));
    conr_head_close(h);
    HOSTILE(CONR_ENUMBER, "tensor 'mean' holds", "mean", 1, 5, 1, NAN);
    HOSTILE(CONR_ENUMBER, "tensor 'basis' holds", "basis", 2, 5, 5, INFINITY);
    HOSTILE(CONR_ENUMBER, "projector.0.weight", "projector.0.weight", 2, 64, 5, NAN);
    HOSTILE(CONR_ENUMBER, "running_var", "projector.1.running_var", 1, 64, 1, -1);
    HOSTILE(CONR_EFORMAT, "mean", "mean", 1, 6, 1, 0);
    HOSTILE(CONR_EFORMAT, "projector.0.weight", "basis", 2, 6, 5, 0);
    HOSTILE(CONR_EFORMAT, "mean", "basis", 2, 5, 6, 0);
    HOSTILE(CONR_EFORMAT, "a layer of the head is missing", "basis", 1, 5, 1, 0);
    HOSTILE(CONR_EFORMAT, "a layer of the head is missing", "basis", 2, 0, 5, 0);
    HOSTILE(CONR_EFORMAT, "projector", "projector.0.weight", 2, 63, 5, 0);
    HOSTILE(CONR_EFORMAT, "projector.3", "projector.3.weight", 2, 16, 63, 0);
    HOSTILE(CONR_EFORMAT, "projector.3.bias", "projector.3.bias", 1, 17, 1, 0);
    tensor mean = {"mean", TENSOR_F32, 1, {1}, 1, &(float){0}};
    const char *path = temporary_path("other.safetensors");
    assert_ok(tensors_write(path, &mean, 1, NULL, 0));
    assert_fails(CONR_EFORMAT, "not a head of conr", conr_head_open(cpu, path, &h));
    assert_fails(CONR_EFILE, "nowhere", conr_head_open(cpu, temporary_path("nowhere"), &h));
    path = temporary_file("damaged.safetensors", "abc", 3);
    assert_fails(CONR_EFORMAT, "damaged.safetensors", conr_head_open(cpu, path, &h));
}

static int open_cpu(void **state) {
    (void)state;
    return conr_open("cpu", 1, &cpu);
}

static int close_cpu(void **state) {
    (void)state;
    conr_close(cpu);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gains),        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_seed),         cmocka_unit_test(test_width),
        cmocka_unit_test(test_unseen),       cmocka_unit_test(test_odd),
        cmocka_unit_test(test_scale),        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_stops),        cmocka_unit_test(test_file),
        cmocka_unit_test(test_hostile_files)};
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
