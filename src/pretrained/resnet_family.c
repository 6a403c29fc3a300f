/* resnet_family.c: ResNets as a family of pretrained networks; the network itself is encoder/resnet.h. */
#include "pretrained/family.h"

#include "base/status.h"
#include "encoder/resnet.h"

#include <stdio.h>
#include <string.h>

/* As torchvision prepares images for its own weights; Hugging Face resizes by the other filter.  A
 * file of timm looks like one of torchvision: its preparation can be set. */
static void prepare_for(const resnet_about *r, preparation *out) {
    bool small = r->stem == STEM_CIFAR;
    *out =
        (preparation){.size = small ? 32 : 224,
                      .side = small ? 32 : 256,
                      .filter = strcmp(r->form, "Hugging Face") ? PIXELS_BILINEAR : PIXELS_BICUBIC,
                      .norm = settings_imagenet};
}

static int recognize(const tensors *f, const encoder_settings *set, encoder_about *about) {
    resnet_about r;
    int rc = resnet_recognize(f, &r);
    if (rc <= 0) return rc;
    if (r.channels != 3)
        return fail(CONR_EFORMAT,
                    "%s: its images have %d channels, not 3; give a network for color", f->path,
                    r.channels);
    if (set->pool >= 0 || set->gelu >= 0 || set->heads)
        return fail(CONR_EINVAL,
                    "%s: pool, gelu and heads are settings of vision transformers, and "
                    "this is a ResNet; leave them out",
                    f->path);
    *about = (encoder_about){.family = "ResNet",
                             .form = r.form,
                             .unit = 1,
                             .features = r.features,
                             .weights = r.weights};
    int n = snprintf(about->network, sizeof about->network, "%s", encoder_name(r.encoder));
    if (r.width != 64)
        snprintf(about->network + n, sizeof about->network - (size_t)n, " of width %d", r.width);
    prepare_for(&r, &about->prepare);
    rc = settings_prepare(set, &about->prepare);
    return rc < 0 ? rc : 1;
}

static int open_net(device *dev, const tensors *f, const encoder_settings *set, int batch,
                    void **out) {
    encoder_about about;
    resnet *r = NULL;
    int rc = recognize(f, set, &about);
    if (rc > 0) rc = resnet_open(dev, f, about.prepare.size, batch, &r);
    *out = r;
    return rc;
}

static void close_net(void *net) { resnet_close(net); }

static int encode(void *net, const float *images, int n, float *features) {
    return resnet_encode(net, images, n, features);
}

const family family_resnet = {
    .recognize = recognize, .open = open_net, .close = close_net, .encode = encode};
