/* early_test.c: neighbors in stage 1, and which optimum of k-means counts. */
#include "images/images.h"
#include "train/train.h"
#include "train/train_test_help.h"

#include <math.h>
#include <string.h>

typedef struct setting {
    conr *c;
    conr_images *m;
    store store;
    trainer *t;
} setting;

/* pairs: keys and values, ending with NULL. */
static void open_trainer(const char *const *pairs, setting *x) {
    conr_images_options io = conr_images_defaults();
    store_options so = {.threads = 1};
    pixels_norm norm;
    conr_settings *s = test_settings("byol");
    for (; *pairs; pairs += 2) assert_ok(conr_settings_set(s, pairs[0], pairs[1]));
    assert_ok(conr_open("cpu", 2, &x->c));
    assert_ok(conr_images_open(x->c, test_images_file(), &io, NULL, NULL, &x->m));
    assert_ok(store_open(&x->m->source, &so, &x->store));
    store_norm(&x->m->source, &x->store, 1, &norm);
    assert_ok(trainer_open(x->c, &x->store, &norm, &s->o, &x->t));
    assert_ok(trainer_seek(x->t));
    conr_settings_free(s);
}

static void close_trainer(setting *x) {
    trainer_close(x->t);
    store_close(&x->store);
    conr_images_close(x->m);
    conr_close(x->c);
}

static void train(setting *x, int epochs) {
    while (x->t->step < epochs * x->t->steps) {
        if (x->t->step == 2 * x->t->steps) assert_ok(trainer_cluster(x->t));
        assert_ok(trainer_step(x->t));
    }
}

/* Early neighbors are stage 2 without its filter, at the rates and with the views of stage 1. */
static void early_is_stage2_at_stage1_rates(void **state) {
    (void)state;
    static const char *const early[] = {"stage1_epochs", "4", "early_k", "3",
                                        "early_epoch",   "2", NULL};
    static const char *const other[] = {"stage1_epochs",
                                        "2",
                                        "k",
                                        "3",
                                        "boundary",
                                        "false",
                                        "stage2_predictor_lr",
                                        "10",
                                        "stage2_crop_scale",
                                        "0.08",
                                        "stage2_lr",
                                        "1",
                                        NULL};
    static const char *const plain[] = {"stage1_epochs", "4", NULL};
    setting a, b, c;
    open_trainer(early, &a), open_trainer(other, &b), open_trainer(plain, &c);
    train(&a, 2), train(&b, 2), train(&c, 2);
    size_t bytes = a.t->net.n_weights * sizeof(float);
    assert_memory_equal(a.t->w, c.t->w, bytes); /* not before its epoch */
    train(&a, 4), train(&b, 4), train(&c, 4);
    assert_memory_equal(a.t->w, b.t->w, bytes);
    assert_memory_equal(a.t->target_w, b.t->target_w, a.t->net.n_target * sizeof(float));
    assert_true(memcmp(a.t->w, c.t->w, bytes) != 0);
    close_trainer(&a), close_trainer(&b), close_trainer(&c);
}

/* Rows of two long parallel bars: which one is row i in? */
static int bar(int64_t i) { return (int)(i % 2); }

/* k-means ends lower if it cuts across both bars than if it takes each for a cluster, but neighbors
 * lie along the bars. */
static void last_clusters_stay(void **state) {
    (void)state;
    for (int by_neighbors = 0; by_neighbors < 2; by_neighbors++) {
        const char *const pairs[] = {"kmeans_choice",
                                     by_neighbors ? "neighbors" : "objective",
                                     "clusters",
                                     "2",
                                     "restarts",
                                     "10",
                                     NULL};
        setting x;
        open_trainer(pairs, &x);
        int64_t n = x.store.n;
        int d = x.t->d, right = 0;
        int32_t label[TEST_IMAGES];
        float centroids[2 * 8] = {0};
        assert_int_equal(n, TEST_IMAGES);
        assert_int_equal(d, 8);
        memset(x.t->features_on, 0, (size_t)(n * d) * sizeof(float));
        for (int64_t i = 0; i < n; i++) {
            double angle = 1.75 * (double)(i / 2) / (double)(n / 2 - 1), up = bar(i) ? 0.3 : -0.3;
            double size = sqrt(1 + up * up);
            float *f = x.t->features_on + i * d;
            f[0] = (float)(cos(angle) / size), f[1] = (float)(sin(angle) / size);
            f[2] = (float)(up / size);
            label[i] = bar(i);
            for (int j = 0; j < d; j++) centroids[label[i] * d + j] += 2 * f[j] / (float)n;
        }
        assert_ok(trainer_set_labels(x.t, label, centroids, 2));
        x.t->featured = x.t->step, x.t->fetched = -1;
        assert_ok(trainer_cluster(x.t));
        for (int64_t i = 0; i < n; i++) right += x.t->label[i] == bar(i);
        if (by_neighbors)
            assert_int_equal(right, n);
        else
            assert_in_range(right, n / 4, 3 * n / 4);
        close_trainer(&x);
    }
}

/* A tie, and a lead that other rows of the same kind would turn round, confirm nothing. */
static void chance_confirms_nothing(void **state) {
    (void)state;
    assert_false(neighbors_confirm(0.8711, 0.8711, 0.9727, 13394));
    assert_false(neighbors_confirm(0.8735, 0.8711, 0.9727, 13394)); /* the error is .0014 */
    assert_true(neighbors_confirm(0.8742, 0.8711, 0.9727, 13394));
    assert_true(neighbors_confirm(0.857, 0.844, 0.95, 13394));
    assert_false(neighbors_confirm(0.857, 0.844, 0.95, 400)); /* few rows say little */
    assert_false(neighbors_confirm(NAN, 0.5, 0.9, 100));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(early_is_stage2_at_stage1_rates),
        cmocka_unit_test(last_clusters_stay),
        cmocka_unit_test(chance_confirms_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
