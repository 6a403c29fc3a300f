/* model.c: saving and opening models; features of any images; labels.csv. */
#include "model/model.h"

#include "base/checksum.h"
#include "base/csv.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/npy.h"
#include "base/status.h"
#include "context/context.h"
#include "encoder/pass.h"
#include "images/feed.h"
#include "images/images.h"
#include "model/kept.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- saving ---------------------------------------------------------------------------------- */

enum { MODEL_NOTES = 16, NOTE_TEXT = 128 };

typedef struct notes {
    char text[MODEL_NOTES][NOTE_TEXT];
    tensor_note note[MODEL_NOTES];
    int n;
} notes;

__attribute__((format(printf, 3, 4))) static void add_note(notes *s, const char *key,
                                                           const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(s->text[s->n], NOTE_TEXT, format, list);
    va_end(list);
    s->note[s->n] = (tensor_note){key, s->text[s->n]};
    s->n++;
}

/* Layers of a head as "512 norm relu, 64": enough to build it again. */
static void head_text(const mlp_spec *m, char out[NOTE_TEXT]) {
    size_t at = 0;
    out[0] = 0;
    for (int i = 0; i < m->n; i++)
        at += (size_t)snprintf(out + at, NOTE_TEXT - at, "%s%d%s%s%s", i ? "," : "",
                               m->layer[i].out, m->layer[i].bias ? " bias" : "",
                               m->layer[i].norm ? " norm" : "", m->layer[i].relu ? " relu" : "");
}

static int head_parse(const char *text, mlp_spec *m) {
    *m = (mlp_spec){.init = INIT_TORCH};
    while (*text) {
        char *end;
        long out = strtol(text, &end, 10);
        if (end == text || out < 1 || out > 1 << 20 || m->n == MLP_LAYERS) return -1;
        m->layer[m->n].out = (int)out;
        size_t length = strcspn(end, ",");
        for (size_t i = 0; i < length; i++) {
            m->layer[m->n].bias |= !strncmp(end + i, " bias", 5);
            m->layer[m->n].norm |= !strncmp(end + i, " norm", 5);
            m->layer[m->n].relu |= !strncmp(end + i, " relu", 5);
        }
        m->n++;
        text = end + length + (end[length] == ',');
    }
    return 0;
}

int model_save(const conr_model *m, const char *path) {
    const network_spec *s = &m->net.spec;
    const pixels_norm *norm = &m->norm;
    notes n = {0};
    char head[NOTE_TEXT];
    head_text(&s->projector, head);
    add_note(&n, "format", "conr model 1");
    add_note(&n, "version", "%s", CONR_VERSION);
    add_note(&n, "framework", "%s", m->framework);
    add_note(&n, "encoder", "%s", encoder_name(s->encoder));
    add_note(&n, "stem", "%s", stem_name(s->stem));
    add_note(&n, "width", "%d", s->width);
    add_note(&n, "size", "%d", s->h);
    add_note(&n, "channels", "%d", s->c);
    add_note(&n, "short_side", "%d", m->short_side);
    add_note(&n, "projector", "%s", head);
    add_note(&n, "mean", "%.9g %.9g %.9g", norm->mean[0], norm->mean[1], norm->mean[2]);
    add_note(&n, "deviation", "%.9g %.9g %.9g", norm->deviation[0], norm->deviation[1],
             norm->deviation[2]);
    return network_save(&m->net, path, PART_ENCODER | PART_PROJECTOR, m->w, m->running, n.note,
                        n.n);
}

const char *model_stem(const conr_model *m) { return stem_name(m->net.spec.stem); }

/* ---- opening --------------------------------------------------------------------------------- */

static int note_text(const tensors *f, const char *key, const char **out) {
    *out = tensors_note(f, key);
    if (*out) return 0;
    return fail(CONR_EFORMAT,
                "%s: not a model of conr (its metadata lacks %s); give the folder of a run",
                f->path, key);
}

static int note_int(const tensors *f, const char *key, int low, int high, int *out) {
    const char *text;
    char *end;
    int rc = 0;
    TRY(note_text(f, key, &text));
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < low || value > high)
        TRY(fail(CONR_EFORMAT, "%s: %s is %s, not %d to %d; the file is damaged", f->path, key,
                 text, low, high));
    *out = (int)value;
done:
    return rc;
}

static int unknown_note(const tensors *f, const char *key, const char *text) {
    return fail(CONR_EFORMAT, "%s: %s is %s, which this version does not know; use a newer conr",
                f->path, key, text);
}

static int note_three_floats(const tensors *f, const char *key, float out[3]) {
    const char *text;
    int rc = 0;
    TRY(note_text(f, key, &text));
    if (sscanf(text, "%f %f %f", &out[0], &out[1], &out[2]) != 3 || !isfinite(out[0]) ||
        !isfinite(out[1]) || !isfinite(out[2]))
        TRY(fail(CONR_EFORMAT, "%s: %s is %s, not three numbers; the file is damaged", f->path, key,
                 text));
done:
    return rc;
}

static int read_about(const char *path, conr_model *m) {
    int rc = 0;
    tensors f = {0};
    network_spec s = {0};
    const char *text;
    TRY(tensors_open(path, &f));
    TRY(note_text(&f, "encoder", &text));
    if (!encoder_find(text, &s.encoder)) TRY(unknown_note(&f, "encoder", text));
    TRY(note_text(&f, "stem", &text));
    if (!stem_find(text, &s.stem)) TRY(unknown_note(&f, "stem", text));
    TRY(note_int(&f, "width", 1, 1024, &s.width));
    TRY(note_int(&f, "size", NETWORK_SIDE, 4096, &s.h));
    s.w = s.h;
    TRY(note_int(&f, "channels", 1, 3, &s.c));
    TRY(note_int(&f, "short_side", 0, 8192, &m->short_side));
    TRY(note_text(&f, "projector", &text));
    if (head_parse(text, &s.projector) < 0 || s.projector.n == 0)
        TRY(fail(CONR_EFORMAT, "%s: its projector is %s; the file is damaged", path, text));
    TRY(note_three_floats(&f, "mean", m->norm.mean));
    TRY(note_three_floats(&f, "deviation", m->norm.deviation));
    for (int i = 0; i < 3; i++)
        if (!(m->norm.deviation[i] > 0))
            TRY(fail(CONR_EFORMAT,
                     "%s: deviation is %g, and images are divided by it; the file is "
                     "damaged",
                     path, (double)m->norm.deviation[i]));
    TRY(note_text(&f, "framework", &text));
    snprintf(m->framework, sizeof m->framework, "%s", text);
    TRY(network_new(&s, &m->net));
done:
    tensors_close(&f);
    return rc;
}

static int read_centroids(const char *path, conr_model *m) {
    int64_t d = 0;
    int rc = conr_read_features(path, &m->centroids, &m->K, &d);
    int features = m->net.layer[m->net.projector_end - 1].co;
    if (rc == 0 && d != features)
        rc = fail(CONR_EFORMAT,
                  "%s: centroids of %lld elements, features of %d; they belong to different "
                  "models",
                  path, (long long)d, features);
    return rc;
}

int conr_model_open(conr *c, const char *path, conr_model **out) {
    int rc = 0, parts = 0;
    char file[4200], centroids[4200], run[4096];
    struct stat at;
    long epoch;
    bool kept = kept_is(path, run, &epoch);
    (void)c;
    *out = NULL;
    if (kept) path = run;
    conr_model *m = calloc(1, sizeof *m);
    if (!m) return fail_memory("model", sizeof *m);
    bool folder = stat(path, &at) == 0 && S_ISDIR(at.st_mode);
    snprintf(file, sizeof file, folder ? "%s/model.safetensors" : "%s", path);
    snprintf(centroids, sizeof centroids, "%s/centroids.npy", path);
    if (folder && stat(file, &at))
        TRY(fail(CONR_EFILE, "%s: holds no model.safetensors; has its training finished?", path));
    TRY(read_about(file, m));
    TRY(memory_check(file, 4.0 * (double)m->net.n_weights));
    m->w = calloc(m->net.n_weights, sizeof *m->w);
    m->running = calloc(m->net.n_running + 1, sizeof *m->running);
    TRY(m->w && m->running ? 0 : fail_memory("model", 4.0 * (double)m->net.n_weights));
    TRY(network_load(&m->net, file, m->w, m->running, &parts));
    if (!(parts & PART_PROJECTOR))
        TRY(fail(CONR_EFORMAT, "%s: has no projector; give a model that conr wrote", file));
    if (folder) TRY(checksum_check(path, "model.safetensors", "DONE"));
    if (kept) TRY(kept_load(m, run, epoch));
    if (folder && !kept && stat(centroids, &at) == 0) { /* those of the end */
        TRY(read_centroids(centroids, m));
        TRY(checksum_check(path, "centroids.npy", "DONE"));
    }
    *out = m;
done:
    if (rc < 0) conr_model_close(m);
    return rc;
}

void conr_model_close(conr_model *m) {
    if (!m) return;
    network_free(&m->net);
    free(m->w);
    free(m->running);
    conr_free(m->centroids);
    free(m);
}

void conr_model_about(const conr_model *m, conr_model_info *out) {
    *out = (conr_model_info){.encoder = encoder_name(m->net.spec.encoder),
                             .framework = m->framework,
                             .size = m->net.spec.h,
                             .channels = m->net.spec.c,
                             .features = m->net.layer[m->net.projector_end - 1].co,
                             .clusters = (int)m->K,
                             .centroids = m->centroids};
}

/* ---- features -------------------------------------------------------------------------------- */

/* State of an embedding on the device. */
typedef struct embedder {
    device *dev;
    ranks ranks;
    pass *pass;
    feed feed;
    parameters at;
    act *images;
    float *flat, *unit, *norm;
    step_values *values;
} embedder;

static int open_embedder(device *dev, const conr_model *m, const store *s, int n, int d,
                         embedder *e) {
    int rc = 0;
    *e = (embedder){.dev = dev};
    feed_options f = {.load = {.size = m->net.spec.h,
                               .batch = n,
                               .ranks = 1,
                               .parts = 1,
                               .workers = dev->threads > 1 ? dev->threads / 2 : 1,
                               .ahead = 1,
                               .policy = draw_policy_default(),
                               .norm = m->norm},
                      .short_side = m->short_side};
    pass_options p = {.groups = 1, .passes = 1, .end = m->net.projector_end};
    TRY(ranks_open(&e->ranks));
    TRY(feed_open(dev, s, &f, &e->feed));
    n = p.n = e->feed.plain; /* at once; may be more than asked for */
    size_t rows = (size_t)n * (size_t)d * sizeof(float);
    TRY(pass_new(dev, &e->ranks, &m->net, &p, &e->pass));
    TRY(dev->op.alloc(dev, m->net.n_weights * sizeof(float), (void **)&e->at.w));
    TRY(dev->op.alloc(dev, (m->net.n_running + 1) * sizeof(float), (void **)&e->at.running));
    TRY(dev->op.put(dev, e->at.w, m->w, m->net.n_weights * sizeof(float)));
    TRY(dev->op.put(dev, e->at.running, m->running, m->net.n_running * sizeof(float)));
    TRY(dev->op.alloc(dev, (size_t)n * e->feed.row * dev->act_size, (void **)&e->images));
    TRY(dev->op.alloc(dev, rows, (void **)&e->flat));
    TRY(dev->op.alloc(dev, rows, (void **)&e->unit));
    TRY(dev->op.alloc(dev, (size_t)n * sizeof(float), (void **)&e->norm));
    TRY(dev->op.alloc(dev, sizeof *e->values, (void **)&e->values));
    TRY(dev->op.sync(dev));
done:
    return rc;
}

static void close_embedder(embedder *e) {
    void *all[] = {e->at.w, e->at.running, e->images, e->flat, e->unit, e->norm, e->values};
    if (!e->dev) return;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) e->dev->op.free(e->dev, all[i]);
    pass_free(e->pass);
    feed_close(&e->feed);
    ranks_close(&e->ranks);
}

int conr_embed(conr *c, const conr_model *m, conr_images *images, float **features, int64_t *n,
               int64_t *d) {
    enum { BATCH = 256 };
    int rc = 0, width = m->net.layer[m->net.projector_end - 1].co;
    device *dev = c->dev;
    store s = {0};
    embedder e = {0};
    store_options o = {
        .side = store_side_for(m->net.spec.h), .channels = m->net.spec.c, .threads = dev->threads};
    if (m->short_side > o.side) o.side = m->short_side;
    *features = NULL;
    TRY(store_open(&images->source, &o, &s));
    int batch = s.n < BATCH ? (int)s.n : BATCH;
    *n = s.n, *d = width;
    *features = memory_new("features", (size_t)s.n * (size_t)width, sizeof **features);
    TRY(*features ? 0 : CONR_ENOMEM);
    TRY(open_embedder(dev, m, &s, batch, width, &e));
    batch = e.feed.plain;
    for (int64_t first = 0; first < s.n; first += batch) {
        int64_t count = s.n - first < batch ? s.n - first : batch;
        TRY(device_report(dev, "embedding", first, s.n));
        TRY(feed_plain_next(&e.feed, first));
        TRY(feed_plain(&e.feed, e.values, e.images));
        TRY(pass_forward(e.pass, &e.at, e.images, PASS_EVAL));
        TRY(pass_output(e.pass, m->net.projector_end, e.flat));
        TRY(dev->op.rows_normalize(dev, e.flat, batch, width, e.unit, e.norm));
        TRY(dev->op.get(dev, *features + first * width, e.unit,
                        (size_t)(count * width) * sizeof **features));
    }
done:
    close_embedder(&e);
    store_close(&s);
    if (rc < 0) conr_free(*features), *features = NULL;
    return rc;
}

/* ---- labels.csv ------------------------------------------------------------------------------ */

static void write_row(FILE *f, const char *name, int32_t label, float distance, float boundary) {
    csv_write(f, name);
    /* rounding may say less than 0 */
    fprintf(f, ",%d,%.6g,%.6g", label, distance > 0 ? (double)distance : 0, (double)boundary);
}

int conr_write_clusters(const char *path, conr_images *images, const int32_t *labels,
                        const float *distances, const float *boundary, int64_t n) {
    folder_lock lock;
    int rc = folder_lock_beside(path, "options.yaml", &lock); /* into the folder of a run */
    if (rc == 0) rc = model_write_clusters(path, images, labels, distances, boundary, n);
    folder_lock_drop(&lock);
    return rc;
}

int model_write_clusters(const char *path, conr_images *images, const int32_t *labels,
                         const float *distances, const float *boundary, int64_t n) {
    int rc = 0;
    file_new f = {0};
    const source *s = &images->source;
    if (n != s->n)
        return fail(CONR_EINVAL,
                    "%s: %lld rows for %lld images; give the features of the same images", path,
                    (long long)n, (long long)s->n);
    bool labeled = s->n_classes > 0;
    TRY(file_new_open(&f, path));
    fprintf(f.stream, "path,cluster,distance,boundary%s\n", labeled ? ",label" : "");
    for (int64_t i = 0; i < n; i++) {
        write_row(f.stream, conr_images_path(images, i), labels[i], distances[i], boundary[i]);
        if (labeled) fprintf(f.stream, ",%d", source_label(s, i));
        fputc('\n', f.stream);
    }
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    return rc;
}

int conr_write_rows(const char *path, const char *const *names, const char *from,
                    const int64_t *truth, const int32_t *labels, const float *distances,
                    const float *boundary, int64_t n) {
    int rc = 0;
    file_new f = {0};
    char name[4200];
    TRY(file_new_open(&f, path));
    bool measured = distances && boundary;
    fprintf(f.stream, "path,cluster%s%s\n", measured ? ",distance,boundary" : "",
            truth ? ",label" : "");
    for (int64_t i = 0; i < n; i++) {
        if (!names) snprintf(name, sizeof name, "%.4096s#%lld", from, (long long)i);
        if (measured)
            write_row(f.stream, names ? names[i] : name, labels[i], distances[i], boundary[i]);
        else
            csv_write(f.stream, names ? names[i] : name), fprintf(f.stream, ",%d", labels[i]);
        if (truth) fprintf(f.stream, ",%lld", (long long)truth[i]);
        fputc('\n', f.stream);
    }
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    return rc;
}
