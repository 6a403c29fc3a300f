/* pass_plan_test.c: the bytes that passes need, and the errors when there are too few. */
#include "encoder/pass.h"

#include "base/test_help.h"

static void memory_is_planned(void **state) {
    (void)state;
    network_spec spec = {
        .encoder = ENCODER_RESNET18, .stem = STEM_CIFAR, .width = 64, .h = 32, .w = 32, .c = 3};
    network net;
    device *dev;
    ranks r;
    pass *p;
    size_t forward, backward, recompute;
    assert_ok(network_new(&spec, &net));
    assert_ok(device_open("ref", 0, &dev));
    assert_ok(ranks_open(&r));
    pass_options o = {.n = 64, .groups = 2, .passes = 2, .end = net.encoder_end};
    assert_ok(pass_bytes(dev, &net, &o, &forward));
    o.backward = true;
    assert_ok(pass_bytes(dev, &net, &o, &backward));
    o.recompute = true;
    assert_ok(pass_bytes(dev, &net, &o, &recompute));
    /* One map of 64 channels at 32x32 takes 16 MiB for 64 images.  Forward needs only three of them
     * (input, two outputs); backward keeps 2.5 per block pair of stage one, and so on; recompute
     * keeps the outputs of all convolutions but the first, 8.4 maps, and half a map in transit. */
    size_t map = (size_t)64 * 32 * 32 * 64 * 4;
    assert_true(forward <= 3 * map + (1 << 20));
    assert_true(backward > 10 * map && backward < 24 * map);
    assert_true(recompute < 9 * map);

    dev->memory = recompute - 1;
    assert_fails(CONR_ENOMEM, "a batch of 62 fits", pass_new(dev, &r, &net, &o, &p));
    assert_null(p);
    o.n = 1 << 24;
    assert_fails(CONR_EINVAL, "over 2^31 pixels", pass_new(dev, &r, &net, &o, &p));
    assert_null(p);
    o.n = 64;
    dev->memory = 1000;
    assert_fails(CONR_ENOMEM, "a batch of 0 fits", pass_new(dev, &r, &net, &o, &p));
    network_free(&net);
    device_close(dev);
}

/* ResNet-50 at 224 pixels, in units of one map of 256 channels at 56x56, 3.06 MiB an image. */
static void bottlenecks_are_planned(void **state) {
    (void)state;
    network_spec spec = {.encoder = ENCODER_RESNET50,
                         .stem = STEM_IMAGENET,
                         .width = 64,
                         .h = 224,
                         .w = 224,
                         .c = 3};
    network net;
    device *dev;
    size_t forward, backward, recompute;
    assert_ok(network_new(&spec, &net));
    assert_ok(device_open("ref", 0, &dev));
    pass_options o = {.n = 8, .groups = 1, .passes = 1, .end = net.encoder_end};
    assert_ok(pass_bytes(dev, &net, &o, &forward));
    o.backward = true;
    assert_ok(pass_bytes(dev, &net, &o, &backward));
    o.recompute = true;
    assert_ok(pass_bytes(dev, &net, &o, &recompute));
    size_t map = (size_t)8 * 56 * 56 * 256 * 4;
    /* Forward: in the first block of stage 2, its input (1), 1x1 and 3x3 (1/2 and 1/8) and the
     * projected shortcut (1/2), then the stage's own.  Without recomputing, Y and Z of every
     * convolution stay: 2 x 13.9 maps. */
    assert_true(forward >= 2 * map && forward <= 2.3 * (double)map);
    assert_true(backward > 24 * map && backward < 30 * map);
    assert_true(recompute < 16 * map);
    network_free(&net);
    device_close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_is_planned),
                                       cmocka_unit_test(bottlenecks_are_planned)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
