/* ranks_test.c: N ranks give the result of one.  Runs as one process, and under mpirun -n 1, 2 and
 * 4 in builds with MPI; each rank computes the whole by itself and its part with the others. */
#include "ranks/ranks.h"

#include "base/test_help.h"
#include "encoder/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ranks all;
static device *dev;

static void collectives(void **state) {
    (void)state;
    int n = all.count;
    float x[3] = {(float)all.rank, 1, 0.5f}, parts[3 * 64], mine[3];
    assert_true(n <= 64);
    assert_ok(ranks_gather(&all, dev, x, sizeof x, parts));
    for (int i = 0; i < n; i++) assert_true(parts[3 * i] == (float)i && parts[3 * i + 1] == 1);
    /* the gradient of gather has the factor N and takes this rank's part */
    assert_ok(ranks_gather_back(&all, dev, parts, 3, mine));
    assert_true(mine[0] == (float)(n * all.rank) && mine[1] == (float)n);
    assert_ok(ranks_sum(&all, dev, x, 3));
    assert_true(x[0] == (float)(n * (n - 1) / 2) && x[1] == (float)n);
    assert_ok(ranks_mean(&all, dev, x, 3));
    assert_true(x[1] == (float)n);
    x[0] = (float)(all.rank + 7);
    assert_ok(ranks_broadcast(&all, x, sizeof *x));
    assert_true(x[0] == 7);
    assert_ok(ranks_all_gather(&all, &all.rank, sizeof all.rank, parts));
    for (int i = 0; i < n; i++) assert_int_equal(((int *)(void *)parts)[i], i);
    /* groups of two consecutive ranks */
    ranks pair;
    int size = n % 2 ? 1 : 2;
    assert_ok(ranks_part(&all, size, &pair));
    assert_int_equal(pair.count, size);
    assert_int_equal(pair.rank, all.rank % size);
    x[0] = (float)all.rank;
    assert_ok(ranks_mean(&pair, dev, x, 1));
    assert_true(x[0] == (float)(all.rank / size * size) + 0.5f * (float)(size - 1));
    ranks_close(&pair);
}

enum { VIEW = 8, OUT = 5, SIDE = 16 }; /* images per view, over all ranks */

typedef struct result {
    float out[2 * VIEW * OUT];
    float *dw, *running;
} result;

/* Forward and backward of `count` images of each view from `first` on, with these ranks.  The loss
 * is that of the whole batch, <t, all outputs>: outputs are gathered, so their gradient comes from
 * ranks_gather_back. */
static void train(const network *net, ranks *r, int first, int count, const float *images,
                  const float *t, result *to) {
    size_t image = SIDE * SIDE * 3;
    float *w = calloc(net->n_weights, sizeof *w), *part = calloc(2 * VIEW * image, sizeof *part);
    float mine[2 * VIEW * OUT], d[2 * VIEW * OUT], gathered[2 * VIEW * OUT];
    to->running = calloc(net->n_running, sizeof *to->running);
    to->dw = calloc(net->n_weights, sizeof *to->dw);
    network_init(net, 9, w, to->running);
    for (int v = 0; v < 2; v++)
        memcpy(part + v * count * image, images + (v * VIEW + first) * image,
               (size_t)count * image * sizeof *part);
    parameters at = {w, to->running};
    pass_options o = {.n = 2 * count,
                      .groups = 2,
                      .passes = 2,
                      .end = net->n_layers,
                      .backward = true,
                      .shared = true};
    pass *p;
    assert_ok(pass_new(dev, r, net, &o, &p));
    assert_ok(pass_forward(p, &at, (act *)part, PASS_TRAIN));
    assert_ok(pass_output(p, o.end, mine));
    for (int v = 0; v < 2; v++) {
        size_t n = (size_t)count * OUT;
        assert_ok(ranks_gather(r, dev, mine + v * n, n * sizeof *mine, gathered + v * VIEW * OUT));
        assert_ok(ranks_gather_back(r, dev, t + v * VIEW * OUT, n, d + v * n));
    }
    assert_ok(pass_backward(p, &at, (act *)part, d, false, r, to->dw));
    assert_ok(ranks_mean_end(r, dev));
    memcpy(to->out, gathered, sizeof gathered);
    pass_free(p);
    free(w);
    free(part);
}

static void parts_equal_the_whole(void **state) {
    (void)state;
    network net;
    network_spec spec = {
        .encoder = ENCODER_SMALL, .stem = STEM_SMALL, .width = 4, .h = SIDE, .w = SIDE, .c = 3};
    spec.projector = mlp_byol_projector(12, OUT);
    assert_ok(network_new(&spec, &net));
    size_t pixels = 2 * VIEW * SIDE * SIDE * 3;
    float *images = calloc(pixels, sizeof *images), t[2 * VIEW * OUT];
    for (size_t i = 0; i < pixels; i++) images[i] = sinf(0.7f * (float)i);
    for (int i = 0; i < 2 * VIEW * OUT; i++) t[i] = cosf((float)i);
    result whole, together;
    ranks alone = {.rank = 0, .count = 1};
    int part = VIEW / all.count;
    train(&net, &alone, 0, VIEW, images, t, &whole);
    train(&net, &all, part * all.rank, part, images, t, &together);
    assert_close("outputs", together.out, whole.out, 2 * VIEW * OUT, 1e-6);
    assert_close("statistics", together.running, whole.running, net.n_running, 1e-6);
    assert_close("gradient", together.dw, whole.dw, net.n_weights, 1e-5);
    free(images), free(whole.dw), free(whole.running), free(together.dw), free(together.running);
    network_free(&net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives),
        cmocka_unit_test(parts_equal_the_whole),
    };
    if (ranks_open(&all) < 0 || device_open("ref", 1, &dev) < 0) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_close(dev);
    ranks_close(&all);
    return failed;
}
