/* resnet.c: which ResNet a file holds; see resnet.h. */
#include "encoder/resnet.h"

#include "base/status.h"
#include "encoder/names.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 3, 4))) static const tensor *
find(const tensors *file, const encoder_names *names, const char *format, ...) {
    va_list list;
    char ours[NETWORK_NAME], name[FULL_NAME];
    va_start(list, format);
    vsnprintf(ours, sizeof ours, format, list);
    va_end(list);
    names_in_file(names, ours, name);
    return tensors_find(file, name);
}

/* Blocks of stage s, 1 and up. */
static int count_blocks(const tensors *file, const encoder_names *names, int s) {
    enum { MOST = 1000 }; /* a published one has 36 */
    int n = 0;
    while (n < MOST && find(file, names, "encoder.layer%d.%d.conv1.weight", s, n)) n++;
    return n;
}

network_spec resnet_spec(const resnet_about *a, int size) {
    return (network_spec){.encoder = a->encoder,
                          .stem = a->stem,
                          .width = a->width,
                          .h = size,
                          .w = size,
                          .c = a->channels};
}

static int recognize(const tensors *file, const encoder_names *names, resnet_about *out) {
    int rc = 0, blocks[4];
    network net = {0};
    const tensor *first = find(file, names, "encoder.conv1.weight");
    bool bottlenecks = find(file, names, "encoder.layer1.0.conv3.weight");
    *out = (resnet_about){.form = names->is_hugging_face               ? "Hugging Face"
                                  : !strcmp(names->prefix, "encoder.") ? "conr"
                                                                       : "torchvision"};
    for (int s = 0; s < 4; s++) blocks[s] = count_blocks(file, names, s + 1);
    if (!encoder_of_blocks(bottlenecks, blocks, &out->encoder))
        TRY(fail(CONR_EFORMAT,
                 "%s: a ResNet of %d, %d, %d and %d %s, which conr does not have; give a "
                 "ResNet-18, -34, -50 or -101",
                 file->path, blocks[0], blocks[1], blocks[2], blocks[3],
                 bottlenecks ? "bottlenecks" : "basic blocks"));
    const int64_t *dim = first->dim;
    bool small = out->encoder == ENCODER_SMALL;
    if (first->n_dims != 4 || dim[2] != dim[3] || (dim[2] != 3 && (dim[2] != 7 || small)))
        TRY(fail(CONR_EFORMAT,
                 "%s: tensor '%s' is not a first convolution of 7x7 or 3x3; give a plain ResNet",
                 file->path, first->name));
    if (dim[0] < 1 || dim[0] > 1024 || (dim[1] != 1 && dim[1] != 3))
        TRY(fail(CONR_EFORMAT,
                 "%s: tensor '%s' takes %lld channels to %lld; conr takes 1 or 3 to at most 1024",
                 file->path, first->name, (long long)dim[1], (long long)dim[0]));
    out->stem = small ? STEM_SMALL : dim[2] == 7 ? STEM_IMAGENET : STEM_CIFAR;
    out->width = (int)dim[0], out->channels = (int)dim[1];
    network_spec spec = resnet_spec(out, 224);
    TRY(network_new(&spec, &net));
    out->features = net.layer[net.encoder_end - 1].co;
    out->weights = network_numbers(&net);
    TRY(names_check(names, file, &net));
    rc = 1;
done:
    network_free(&net);
    return rc;
}

int resnet_recognize(const tensors *file, resnet_about *out) {
    encoder_names names;
    return names_find(file, &names) ? recognize(file, &names, out) : 0;
}
