/* resnet_features.c: features of a ResNet from a file; see resnet.h. */
#include "encoder/resnet.h"

#include "base/memory.h"
#include "base/status.h"
#include "encoder/pass.h"

#include <stdlib.h>

struct resnet {
    device *dev;
    network net;
    pass *pass;
    parameters at;
    int batch;
    size_t pixels; /* numbers of an image */
    act *images;   /* [batch,size,size,channels] */
    float *floats; /* the same as floats, unless the device's activations are floats */
    float *out;    /* [batch,d] */
};

static pass_options options_of(const network *net, int batch) {
    return (pass_options){.n = batch, .groups = 1, .passes = 1, .end = net->encoder_end};
}

int resnet_bytes(device *dev, const resnet_about *about, int size, int batch, size_t *out) {
    int rc = 0;
    network net = {0};
    network_spec spec = resnet_spec(about, size);
    TRY(network_new(&spec, &net));
    pass_options o = options_of(&net, batch);
    TRY(pass_bytes(dev, &net, &o, out));
    size_t image = (size_t)size * (size_t)size * (size_t)about->channels;
    *out +=
        (net.n_weights + net.n_running + (size_t)batch * (size_t)about->features) * sizeof(float);
    *out += (size_t)batch * image * (dev->act_size + (dev->type == ACT_F32 ? 0 : sizeof(float)));
done:
    network_free(&net);
    return rc;
}

/* From the file to the device. */
static int load(resnet *r, const tensors *file) {
    int rc = 0;
    device *dev = r->dev;
    size_t n = r->net.n_weights, m = r->net.n_running;
    float *w = memory_new(file->path, n, sizeof *w);
    float *running = memory_new(file->path, m, sizeof *running);
    TRY(w && running ? 0 : CONR_ENOMEM);
    TRY(network_take(&r->net, file, w, running));
    TRY(dev->op.alloc(dev, n * sizeof *w, (void **)&r->at.w));
    TRY(dev->op.alloc(dev, m * sizeof *running, (void **)&r->at.running));
    TRY(dev->op.put(dev, r->at.w, w, n * sizeof *w));
    TRY(dev->op.put(dev, r->at.running, running, m * sizeof *running));
    TRY(dev->op.sync(dev)); /* before w is freed */
done:
    free(w);
    free(running);
    return rc;
}

int resnet_open(device *dev, const tensors *file, int size, int batch, resnet **out) {
    int rc = 0;
    resnet_about about;
    resnet *r = *out = calloc(1, sizeof *r);
    if (!r) return fail_memory("ResNet", sizeof *r);
    r->dev = dev, r->batch = batch;
    TRY(resnet_recognize(file, &about));
    if (rc == 0)
        TRY(fail(CONR_EFORMAT,
                 "%s: holds no ResNet under the names of torchvision, timm or Hugging "
                 "Face; give one that does",
                 file->path));
    network_spec spec = resnet_spec(&about, size);
    TRY(network_new(&spec, &r->net));
    pass_options o = options_of(&r->net, batch);
    TRY(pass_new(dev, NULL, &r->net, &o, &r->pass));
    TRY(load(r, file));
    r->pixels = (size_t)size * (size_t)size * (size_t)about.channels;
    size_t images = (size_t)batch * r->pixels;
    TRY(dev->op.alloc(dev, images * dev->act_size, (void **)&r->images));
    if (dev->type != ACT_F32) TRY(dev->op.alloc(dev, images * sizeof(float), (void **)&r->floats));
    TRY(dev->op.alloc(dev, (size_t)batch * (size_t)about.features * sizeof(float),
                      (void **)&r->out));
done:
    if (rc < 0) {
        resnet_close(r);
        *out = NULL;
    }
    return rc < 0 ? rc : 0;
}

void resnet_close(resnet *r) {
    if (!r) return;
    void *all[] = {r->at.w, r->at.running, r->images, r->floats, r->out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) r->dev->op.free(r->dev, all[i]);
    pass_free(r->pass);
    network_free(&r->net);
    free(r);
}

/* Images beyond the n given are those of the call before: rows do not depend on each other. */
int resnet_encode(resnet *r, const float *images, int n, float *features) {
    int rc = 0, end = r->net.encoder_end;
    device *dev = r->dev;
    size_t count = (size_t)n * r->pixels;
    size_t d = (size_t)r->net.layer[end - 1].co;
    ASSERT(n > 0 && n <= r->batch);
    TRY(dev->op.put(dev, r->floats ? (void *)r->floats : (void *)r->images, images,
                    count * sizeof(float)));
    if (r->floats) TRY(dev->op.act_from(dev, r->floats, count, r->images));
    TRY(pass_forward(r->pass, &r->at, r->images, PASS_EVAL));
    TRY(pass_output(r->pass, end, r->out));
    TRY(dev->op.get(dev, features, r->out, (size_t)n * d * sizeof(float)));
done:
    return rc;
}
