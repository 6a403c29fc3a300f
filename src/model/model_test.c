/* model_test.c: a model file that would compute nonsense, or claims too much, is refused. */
#include "model/model.h"

#include "base/memory.h"
#include "base/npy.h"
#include "base/test_help.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static conr_model make(void) {
    network_spec s = {.encoder = ENCODER_SMALL,
                      .stem = STEM_SMALL,
                      .width = 4,
                      .h = 16,
                      .w = 16,
                      .c = 1,
                      .projector = {.n = 1, .layer = {{.out = 8, .norm = true}}}};
    conr_model m = {.norm = {{0.5f, 0.5f, 0.5f}, {0.25f, 0.25f, 0.25f}}, .framework = "byol"};
    assert_ok(network_new(&s, &m.net));
    m.w = calloc(m.net.n_weights, sizeof *m.w);
    m.running = calloc(m.net.n_running + 1, sizeof *m.running);
    assert_true(m.w && m.running);
    for (size_t i = 0; i < m.net.n_weights; i++) m.w[i] = (float)(i % 7) * 0.125f - 0.375f;
    for (size_t i = 0; i < m.net.n_running; i++) m.running[i] = 1;
    return m;
}

static void drop(conr_model *m) {
    network_free(&m->net);
    free(m->w);
    free(m->running);
}

/* The failure of opening what was saved; 0: none. */
static int reopen(conr *c, const conr_model *m) {
    conr_model *again;
    const char *path = temporary_path("model.safetensors");
    assert_ok(model_save(m, path));
    int rc = conr_model_open(c, path, &again);
    if (rc == 0) conr_model_close(again);
    return rc;
}

static void nonsense_is_refused(void **state) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    conr *c;
    (void)state;
    assert_ok(conr_open("cpu", 1, &c));
    conr_model m = make();
    assert_ok(reopen(c, &m));
    const layer *last = &m.net.layer[m.net.projector_end - 1];
    for (int i = 0; i < 3; i++) {
        size_t places[] = {0, m.net.n_weights / 2, last->w_at, last->gamma_at, last->beta_at};
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            float old = m.w[places[p]];
            m.w[places[p]] = bad[i];
            assert_fails(CONR_ENUMBER, "tensor '", reopen(c, &m));
            m.w[places[p]] = old;
        }
        for (size_t p = 0; p < m.net.n_running; p += m.net.n_running - 1) {
            m.running[p] = bad[i];
            assert_fails(CONR_ENUMBER, "running_", reopen(c, &m));
            m.running[p] = 1;
        }
        for (int k = 0; k < 3; k++) {
            conr_model odd = m;
            odd.norm.mean[k] = bad[i];
            assert_fails(CONR_EFORMAT, "mean is", reopen(c, &odd));
            odd = m;
            odd.norm.deviation[k] = bad[i];
            assert_fails(CONR_EFORMAT, "deviation is", reopen(c, &odd));
        }
    }
    m.running[last->running_at + last->co] = -1; /* a variance */
    assert_fails(CONR_ENUMBER, "running_var' holds -1", reopen(c, &m));
    m.running[last->running_at + last->co] = 0; /* of a channel that was always the same */
    m.running[last->running_at] = -1;           /* a mean */
    assert_ok(reopen(c, &m));
    m.norm.deviation[1] = 0;
    assert_fails(CONR_EFORMAT, "deviation is 0", reopen(c, &m));
    m.norm.deviation[1] = -0.5f;
    assert_fails(CONR_EFORMAT, "deviation is -0.5", reopen(c, &m));
    drop(&m);
    conr_close(c);
}

/* The limit stands in for a small machine. */
static void a_huge_size_is_refused_before_it_is_taken(void **state) {
    static unsigned char pixels[100 * 16 * 16];
    int64_t shape[3] = {100, 16, 16}, n, d;
    conr *c;
    conr_images *images;
    conr_model *again;
    float *features;
    struct rlimit old;
    conr_images_options o = conr_images_defaults();
    (void)state;
    assert_ok(conr_open("cpu", 1, &c));
    conr_model m = make();
    m.net.spec.h = 4096; /* the weights do not depend on it */
    assert_ok(model_save(&m, temporary_path("huge.safetensors")));
    assert_ok(npy_write(temporary_path("images.npy"), 'u', 1, 3, shape, pixels));
    assert_ok(conr_images_open(c, temporary_path("images.npy"), &o, NULL, NULL, &images));
    assert_ok(conr_model_open(c, temporary_path("huge.safetensors"), &again));
    getrlimit(RLIMIT_DATA, &old);
    unsigned long long data = 0; /* pages in use: many under a sanitizer */
    FILE *statm = fopen("/proc/self/statm", "r");
    assert_non_null(statm);
    assert_int_equal(fscanf(statm, "%*u %*u %*u %*u %*u %llu", &data), 1);
    fclose(statm);
    rlim_t limit = (rlim_t)data * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)1 << 30);
    struct rlimit small = {.rlim_cur = limit, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_DATA, &small), 0);
    int rc = conr_embed(c, again, images, &features, &n, &d);
    setrlimit(RLIMIT_DATA, &old);
    assert_int_equal(rc, CONR_ENOMEM);
    if (!strstr(conr_error(), "at hand") && !strstr(conr_error(), "the cpu device has"))
        fail_msg("not refused beforehand: %s", conr_error());
    conr_model_close(again);
    conr_images_close(images);
    drop(&m);
    conr_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(a_huge_size_is_refused_before_it_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
