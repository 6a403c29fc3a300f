/* head.c: a finished head: apply, save, open. */
#include "refine/refine.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows through a network ------------------------------------------------------------------ */

network_spec head_spec(int d, int hidden, int width) {
    return (network_spec){.encoder = ENCODER_NONE,
                          .h = 1,
                          .w = 1,
                          .c = d,
                          .projector = mlp_byol_projector(hidden, width)};
}

int embedder_open(device *dev, const network *net, int64_t n, embedder *out) {
    enum { ROWS = 1024 };
    int rc = 0, rows = n < ROWS ? (int)n : ROWS;
    embedder *e = out;
    *e = (embedder){.dev = dev, .net = net, .rows = rows};
    e->width = net->layer[net->projector_end - 1].co;
    size_t in = (size_t)rows * net->spec.c, flat = (size_t)rows * e->width;
    pass_options o = {.n = rows, .groups = 1, .passes = 1, .end = net->projector_end};
    TRY(pass_new(dev, NULL, net, &o, &e->pass));
    TRY(dev->op.alloc(dev, in * sizeof *e->in, (void **)&e->in));
    TRY(dev->op.alloc(dev, in * dev->act_size, (void **)&e->acts));
    TRY(dev->op.alloc(dev, flat * sizeof *e->flat, (void **)&e->flat));
    e->host = memory_new("features", in, sizeof *e->host);
    TRY(e->host ? 0 : CONR_ENOMEM);
    memset(e->host, 0, in * sizeof *e->host);
done:
    if (rc < 0) embedder_close(e);
    return rc;
}

void embedder_close(embedder *e) {
    if (!e->dev) return;
    pass_free(e->pass);
    e->dev->op.free(e->dev, e->in);
    e->dev->op.free(e->dev, e->acts);
    e->dev->op.free(e->dev, e->flat);
    free(e->host);
    *e = (embedder){0};
}

int embedder_run(embedder *e, const parameters *at, const float *x, int64_t n, float *out) {
    int rc = 0, p = e->net->spec.c;
    device *dev = e->dev;
    size_t in = (size_t)e->rows * p;
    for (int64_t first = 0; first < n; first += e->rows) {
        int count = n - first < e->rows ? (int)(n - first) : e->rows;
        TRY(device_report(dev, "embedding", first, n));
        memcpy(e->host, x + first * p, (size_t)count * p * sizeof *e->host);
        /* rows of the batch before that stay behind the last ones do no harm */
        TRY(dev->op.put(dev, e->in, e->host, in * sizeof *e->in));
        TRY(dev->op.act_from(dev, e->in, in, e->acts));
        TRY(pass_forward(e->pass, at, e->acts, PASS_EVAL));
        TRY(pass_output(e->pass, e->net->projector_end, e->flat));
        TRY(dev->op.rows_normalize(dev, e->flat, e->rows, e->width, e->flat, NULL));
        TRY(dev->op.get(dev, out + first * e->width, e->flat,
                        (size_t)count * e->width * sizeof *out));
    }
done:
    return rc;
}

/* ---- the head -------------------------------------------------------------------------------- */

int head_new(principal *s, int hidden, int width, conr_head **out) {
    int rc = 0;
    network_spec spec = head_spec(s->p, hidden, width);
    conr_head *h = calloc(1, sizeof *h);
    *out = NULL;
    if (!h) return fail_memory("head", sizeof *h);
    h->principal = *s;
    *s = (principal){0};
    TRY(network_new(&spec, &h->net));
    TRY(memory_check("head", 4.0 * (double)h->net.n_weights));
    h->w = calloc(h->net.n_weights, sizeof *h->w);
    h->running = calloc(h->net.n_running, sizeof *h->running);
    TRY(h->w && h->running ? 0 : fail_memory("head", 4.0 * (double)h->net.n_weights));
    *out = h;
done:
    if (rc < 0) conr_head_close(h);
    return rc;
}

void conr_head_close(conr_head *h) {
    if (!h) return;
    principal_free(&h->principal);
    network_free(&h->net);
    free(h->w);
    free(h->running);
    free(h);
}

void conr_head_about(const conr_head *h, int64_t *d, int64_t *width) {
    *d = h->principal.d;
    *width = h->net.layer[h->net.n_layers - 1].co;
}

int conr_head_apply(conr *c, const conr_head *h, const float *features, int64_t n, int64_t d,
                    float *out) {
    int rc = 0;
    device *dev = c->dev;
    embedder e = {0};
    parameters at = {0};
    float *x = NULL;
    TRY(numbers_check("features", features, n, d));
    if (d != h->principal.d)
        TRY(fail(CONR_EINVAL,
                 "features: rows of %lld, but the head was trained on rows of %d; give features "
                 "of the same encoder",
                 (long long)d, h->principal.d));
    x = memory_new("components", (size_t)n * h->principal.p, sizeof *x);
    TRY(x ? 0 : CONR_ENOMEM);
    TRY(principal_rows(c->host, &h->principal, features, n, true, x));
    TRY(embedder_open(dev, &h->net, n, &e));
    TRY(dev->op.alloc(dev, h->net.n_weights * sizeof(float), (void **)&at.w));
    TRY(dev->op.alloc(dev, h->net.n_running * sizeof(float), (void **)&at.running));
    TRY(dev->op.put(dev, at.w, h->w, h->net.n_weights * sizeof(float)));
    TRY(dev->op.put(dev, at.running, h->running, h->net.n_running * sizeof(float)));
    TRY(embedder_run(&e, &at, x, n, out));
done:
    free(x);
    dev->op.free(dev, at.w);
    dev->op.free(dev, at.running);
    embedder_close(&e);
    return rc;
}

/* ---- files ----------------------------------------------------------------------------------- */

static const char head_format[] = "conr head 1";

int conr_head_save(const conr_head *h, const char *path) {
    int rc = 0, n;
    const principal *s = &h->principal;
    arena memory = {0};
    tensor *net, *all;
    tensor_note note[] = {{"format", head_format}, {"version", CONR_VERSION}};
    TRY(network_tensors(&h->net, PART_PROJECTOR, h->w, h->running, &memory, &net, &n));
    all = arena_alloc(&memory, ((size_t)n + 2) * sizeof *all);
    TRY(all ? 0 : CONR_ENOMEM);
    all[0] = (tensor){"mean", TENSOR_F32, 1, {s->d}, (size_t)s->d, s->mean};
    all[1] = (tensor){"basis", TENSOR_F32, 2, {s->p, s->d}, (size_t)s->p * s->d, s->basis};
    memcpy(all + 2, net, (size_t)n * sizeof *all);
    TRY(tensors_write(path, all, n + 2, note, 2));
done:
    arena_free(&memory);
    return rc;
}

/* The shape of the head in a file: basis [p,d], then weights [hidden,p] and [width,hidden]. */
static int read_shape(const tensors *f, principal *s, int *hidden, int *width) {
    enum { MOST = 1 << 20 };
    const char *format = tensors_note(f, "format");
    const tensor *part[] = {tensors_find(f, "basis"), tensors_find(f, "projector.0.weight"),
                            tensors_find(f, "projector.3.weight")};
    if (!format || strcmp(format, head_format))
        return fail(CONR_EFORMAT, "%s: not a head of conr; give a file that conr wrote", f->path);
    for (int i = 0; i < 3; i++)
        if (!part[i] || part[i]->n_dims != 2 || part[i]->dim[0] < 1 || part[i]->dim[0] > MOST ||
            part[i]->dim[1] < 1 || part[i]->dim[1] > MOST)
            return fail(CONR_EFORMAT, "%s: a layer of the head is missing; the file is damaged",
                        f->path);
    *hidden = (int)part[1]->dim[0], *width = (int)part[2]->dim[0];
    return principal_room((int)part[0]->dim[1], (int)part[0]->dim[0], s);
}

static int check_finite(const tensors *f, const char *name, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return fail(CONR_ENUMBER, "%s: tensor '%s' holds %g; the file is damaged", f->path,
                        name, (double)x[i]);
    return 0;
}

static int read_principal(const tensors *f, principal *s) {
    int rc = 0;
    const int64_t mean[] = {s->d}, basis[] = {s->p, s->d};
    TRY(tensors_take(f, "mean", 1, mean, s->mean));
    TRY(tensors_take(f, "basis", 2, basis, s->basis));
    TRY(check_finite(f, "mean", s->mean, (size_t)s->d));
    TRY(check_finite(f, "basis", s->basis, (size_t)s->p * s->d));
done:
    return rc;
}

int conr_head_open(conr *c, const char *path, conr_head **out) {
    int rc = 0, hidden = 0, width = 0;
    conr_head *h = NULL;
    tensors f = {0};
    principal s = {0};
    (void)c;
    *out = NULL;
    TRY(tensors_open(path, &f));
    TRY(read_shape(&f, &s, &hidden, &width));
    TRY(read_principal(&f, &s));
    TRY(head_new(&s, hidden, width, &h));
    TRY(network_load(&h->net, path, h->w, h->running, NULL));
    *out = h;
    h = NULL;
done:
    conr_head_close(h);
    principal_free(&s);
    tensors_close(&f);
    return rc;
}
