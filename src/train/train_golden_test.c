/* train_golden_test.c: ten steps of every framework in both stages against PyTorch's autograd.
 * Formulas, names and layout of golden/train.safetensors are explained in golden/make_train.py. */
#include "train/train.h"

#include "base/memory.h"
#include "base/tensors.h"
#include "base/test_help.h"
#include "train/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 10, BATCH = 24, IMAGES = 120, SIDE = 16, ROW = SIDE * SIDE * 3, PER_EPOCH = 5 };
enum { PROJECTIONS = 3, SAMPLES = 8, SMALL = 32 };

static const double loss_bound = 1e-5, weight_bound = 1e-4; /* of float32 over ten steps */

/* ---- values by formula ----------------------------------------------------------------------- */

static float u(uint32_t seed, uint32_t t, uint32_t i) {
    uint32_t h = seed * 0x9e3779b9u + (t << 20) + i;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    h ^= h >> 16;
    return (float)(h >> 8) * (1.0f / 16777216.0f);
}

static int whole(float x) { return (int)(x * 65536.0f); }

/* View v of step s: [BATCH] rows. */
static void make_view(uint32_t seed, uint32_t draw, const float *id, int s, int v, float *out) {
    for (int i = 0; i < BATCH; i++)
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++)
                for (int c = 0; c < 3; c++) {
                    uint32_t image = (uint32_t)id[i],
                             place = (uint32_t)((y / 4 * 4 + x / 4) * 3 + c);
                    int kind = whole(u(seed, 700, image % 4 * 48 + place));
                    int own = whole(u(seed, 701, image * 48 + place));
                    uint32_t at = (uint32_t)(((i * SIDE + y) * SIDE + x) * 3 + c);
                    int noise = whole(u(draw, (uint32_t)(1000 + 2 * s + v), at));
                    *out++ = (float)(3 * kind + 3 * own + 2 * noise - 262144) / 131072.0f;
                }
}

/* ---- the file -------------------------------------------------------------------------------- */

static tensors file;

/* Tensor "CASE.NAME" as floats, freed by the caller; NULL if there is none. */
static float *numbers(const char *of, const char *name, size_t *count) {
    char full[128];
    snprintf(full, sizeof full, "%s%s%s", of, *of ? "." : "", name);
    const tensor *x = tensors_find(&file, full);
    if (!x) return NULL;
    float *out = memory_new(full, x->count, sizeof *out);
    assert_ok(tensors_floats(&file, x, out));
    if (count) *count = x->count;
    return out;
}

/* The tensors of a block of weights or statistics, in the file's order. */
typedef struct part {
    size_t at;
    int count;
} part;

static int weights_of(const network *net, bool target, part out[128]) {
    int n = 0, end = target ? net->projector_end : net->n_layers;
    for (int i = 0; i < end; i++) {
        const layer *l = &net->layer[i];
        if (l->kind != LAYER_CONV) continue;
        out[n++] = (part){l->w_at, l->co * l->k * l->k * l->ci};
        if (l->bias) out[n++] = (part){l->bias_at, l->co};
        if (l->norm) out[n++] = (part){l->gamma_at, l->co};
        if (l->norm) out[n++] = (part){l->beta_at, l->co};
    }
    return n;
}

static int running_of(const network *net, bool target, part out[128]) {
    int n = 0, end = target ? net->projector_end : net->n_layers;
    for (int i = 0; i < end; i++) {
        const layer *l = &net->layer[i];
        if (l->kind != LAYER_CONV || !l->norm) continue;
        out[n++] = (part){l->running_at, l->co};
        out[n++] = (part){l->running_at + (size_t)l->co, l->co};
    }
    return n;
}

/* ---- one case -------------------------------------------------------------------------------- */

static void read_settings(const char *name, conr_settings *s) {
    char text[4096], *line, *rest = text;
    const char *note = tensors_note(&file, name);
    assert_non_null(note);
    snprintf(text, sizeof text, "%s", note);
    while ((line = strsep(&rest, "\n"))) {
        char *colon = strchr(line, ':');
        if (!colon) continue;
        *colon = 0;
        assert_ok(conr_settings_set(s, line, colon + 2));
    }
}

/* Initial weights, statistics, momentum and queue. */
static void fill(trainer *t, uint32_t seed) {
    part p[128];
    const char *framework = t->framework->name;
    float *offset = numbers(framework, "offset", NULL), *scale = numbers(framework, "scale", NULL);
    int n = weights_of(&t->net, false, p);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < p[i].count; j++) {
            size_t at = p[i].at + (size_t)j;
            t->w[at] = offset[i] + (u(seed, (uint32_t)i, (uint32_t)j) - 0.5f) * scale[i];
            t->v[at] = (u(seed, (uint32_t)(256 + i), (uint32_t)j) - 0.5f) * (scale[i] * 0.0625f);
        }
    n = t->framework->target ? weights_of(&t->net, true, p) : 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < p[i].count; j++)
            t->target_w[p[i].at + (size_t)j] =
                offset[i] + (u(seed, (uint32_t)(128 + i), (uint32_t)j) - 0.5f) * scale[i];
    for (int target = 0; target <= t->framework->target; target++) {
        float *running = target ? t->target_running : t->running;
        n = running_of(&t->net, target, p); /* mean, variance, mean, .. */
        for (int i = 0; i < n; i++)
            for (int j = 0; j < p[i].count; j++)
                running[p[i].at + (size_t)j] =
                    u(seed, (uint32_t)((target ? 512 : 384) + i), (uint32_t)j) +
                    (i % 2 ? 0.5f : -0.5f);
    }
    for (int r = 0; t->framework->queue && r < t->o.queue; r++) {
        double square = 0;
        for (int j = 0; j < t->d; j++) {
            double x = u(seed, 640, (uint32_t)(r * t->d + j)) - 0.5f;
            square += x * x;
        }
        for (int j = 0; j < t->d; j++)
            t->queue[r * t->d + j] =
                (float)((u(seed, 640, (uint32_t)(r * t->d + j)) - 0.5f) / sqrt(square));
    }
    free(offset);
    free(scale);
}

/* The digest of a tensor that the file holds. */
static int digest(const float *x, int count, float *out) {
    if (count <= SMALL) {
        memcpy(out, x, (size_t)count * sizeof *x);
        return count;
    }
    double square = 0, sum[PROJECTIONS] = {0};
    for (int i = 0; i < count; i++) {
        square += (double)x[i] * x[i];
        for (int p = 0; p < PROJECTIONS; p++)
            sum[p] += u(0, (uint32_t)(800 + p), (uint32_t)i) < 0.5f ? -x[i] : x[i];
    }
    out[0] = (float)sqrt(square);
    for (int p = 0; p < PROJECTIONS; p++) out[1 + p] = (float)sum[p];
    for (int j = 0; j < SAMPLES; j++) out[1 + PROJECTIONS + j] = x[(2 * j + 1) * count / 16];
    return 1 + PROJECTIONS + SAMPLES;
}

/* Every value of the digests is within weight_bound of its tensor's norm. */
static void check_block(const char *name, const char *block, const float *x, const part *p, int n) {
    size_t count = 0, at = 0;
    float *want = numbers(name, block, &count), got[SMALL];
    assert_non_null(want);
    for (int i = 0; i < n; i++) {
        int m = digest(x + p[i].at, p[i].count, got);
        assert_true(at + (size_t)m <= count);
        double size = 0, root = sqrt((double)p[i].count);
        for (int j = 0; j < m && p[i].count <= SMALL; j++)
            size += (double)want[at + (size_t)j] * want[at + (size_t)j];
        size = p[i].count <= SMALL ? sqrt(size) : want[at];
        for (int j = 0; j < m; j++) {
            double error = fabs((double)got[j] - want[at + (size_t)j]);
            /* a sum over signs may be off by root times what the norm is */
            bool is_sum = p[i].count > SMALL && j >= 1 && j <= PROJECTIONS;
            if (!(error <= weight_bound * size * (is_sum ? root : 1)))
                fail_msg("%s.%s tensor %d number %d: %.8g, not %.8g; norm %.4g", name, block, i, j,
                         (double)got[j], (double)want[at + (size_t)j], size);
        }
        at += (size_t)m;
    }
    assert_int_equal(at, count);
    free(want);
}

/* All elements, tensor after tensor without gaps. */
static void check_full(const char *name, const char *block, const float *x, const part *p, int n) {
    size_t at = 0;
    float *want = numbers(name, block, NULL);
    if (!want) return;
    for (int i = 0; i < n; at += (size_t)p[i++].count)
        assert_close(name, x + p[i].at, want + at, (size_t)p[i].count, weight_bound);
    free(want);
}

static void check_state(const char *name, const trainer *t) {
    part p[128];
    int n = weights_of(&t->net, false, p);
    check_block(name, "w", t->w, p, n);
    check_full(name, "w.full", t->w, p, n);
    check_block(name, "v", t->v, p, n);
    n = running_of(&t->net, false, p);
    check_block(name, "running", t->running, p, n);
    if (t->framework->target) {
        n = weights_of(&t->net, true, p);
        check_block(name, "target", t->target_w, p, n);
        check_full(name, "target.full", t->target_w, p, n);
        n = running_of(&t->net, true, p);
        check_block(name, "target_running", t->target_running, p, n);
    }
    if (t->framework->queue) {
        p[0] = (part){0, t->o.queue * t->d};
        check_block(name, "queue", t->queue, p, 1);
    }
}

static void set_labels(const char *name, trainer *t) {
    size_t n = 0;
    float *label = numbers(name, "label", NULL), *centroid = numbers(name, "centroid", &n);
    int32_t id[IMAGES];
    if (!label) return;
    for (int i = 0; i < IMAGES; i++) id[i] = (int32_t)label[i];
    assert_ok(trainer_set_labels(t, id, centroid, (int)(n / (size_t)t->d)));
    free(label);
    free(centroid);
}

/* Lists are compared as sets. */
static void check_near(const char *name, int v, const int32_t *got, int k) {
    float *want = numbers(name, "near", NULL);
    if (!want) return;
    for (int i = 0; i < BATCH; i++)
        for (int a = 0; a < k; a++) {
            bool found = false;
            for (int b = 0; b < k; b++)
                found |= want[(v * BATCH + i) * k + a] == (float)got[i * k + b];
            if (!found) fail_msg("%s: row %d of half %d lacks a neighbor", name, i, v);
        }
    free(want);
}

/* Which rows of each half were confident, and of which label. */
static void check_alike(const char *name, int s, const trainer *t) {
    float *want = numbers(name, "alike", NULL);
    assert_true(t->confident == (want != NULL));
    for (int i = 0; want && i < 2 * BATCH; i++)
        if ((float)t->alike[i] != want[s * 2 * BATCH + i])
            fail_msg("%s: row %d at step %d has label %d, not %g", name, i, s, t->alike[i],
                     (double)want[s * 2 * BATCH + i]);
    free(want);
}

static void run_steps(const char *name, trainer *t, uint32_t seed, int first) {
    float *id = numbers("", "id", NULL), *shuffle = numbers("", "shuffle", NULL);
    float *draw = numbers(name, "draw", NULL), *loss = numbers(name, "loss", NULL);
    float *want = numbers(name, "schedule", NULL), *kept = numbers(name, "kept", NULL);
    float *check = numbers(name, "check", NULL);
    for (int s = 0; s < STEPS; s++) {
        step_values at;
        double got;
        for (int v = 0; v < 3; v++)
            make_view(seed, (uint32_t)draw[s], id + s * BATCH, s, v % 2,
                      (float *)t->images + (size_t)v * BATCH * ROW);
        if (s == 0) assert_memory_equal(t->images, check, 4 * sizeof *check);
        for (int i = 0; i < BATCH; i++) {
            t->feed.ids[i] = (int32_t)id[s * BATCH + i];
            for (int v = 0; t->shuffled && v < 2; v++)
                t->rows[v * BATCH + i] = v * BATCH + (int)shuffle[s * BATCH + i];
        }
        for (int i = 0; t->shuffled && i < 2 * BATCH; i++) t->back[t->rows[i]] = i;
        schedule_at(&t->o, first - 1 + s, PER_EPOCH, &at);
        const float *w = want + 4 * s;
        assert_true(fabsf(at.lr[0] - w[0]) <= 1e-6f * w[0]);
        if (w[1] != 0) assert_true(fabsf(at.lr[1] - w[1]) <= 1e-6f * w[1]);
        if (w[2] != 0) assert_true(fabsf(at.average - w[2]) <= 1e-6f);
        at.step = (uint32_t)s; /* the queue counts from the first of the ten steps */
        assert_ok(trainer_step_on(t, &at));
        assert_ok(trainer_loss(t, &got));
        if (!(fabs(got - loss[s]) <= loss_bound * fmax(1, fabs(loss[s]))))
            fail_msg("%s: loss %.8f at step %d, not %.8f", name, got, s, (double)loss[s]);
        check_alike(name, s, t);
        if (s == 0 && t->stage == 2) check_near(name, 1, t->near, t->o.k);
        if (kept && t->o.boundary && !strcmp(t->o.loss_mean, "kept")) {
            int left = 0; /* of the second half: its weights are still in memory */
            for (int i = 0; i < BATCH; i++) left += t->weight[i] > 0;
            assert_int_equal(left, (int)kept[2 * s + 1]);
        }
    }
    free(id), free(shuffle), free(draw), free(loss), free(want), free(kept), free(check);
}

static void one_case(const char *name, const char *device_name) {
    static unsigned char pixels_of_all[ROW];
    stored image[IMAGES];
    store images = {.n = IMAGES, .c = 3, .image = image};
    pixels_norm norm = {.deviation = {1, 1, 1}};
    conr *c;
    conr_settings *s;
    trainer *t;
    float *about = numbers(name, "case", NULL);
    assert_non_null(about);
    for (int i = 0; i < IMAGES; i++) image[i] = (stored){pixels_of_all, SIDE, SIDE};
    assert_ok(conr_open(device_name, 1, &c));
    assert_ok(conr_settings_new(&s));
    read_settings(name, s);
    assert_ok(trainer_open(c, &images, &norm, &s->o, &t));
    fill(t, (uint32_t)about[0]);
    set_labels(name, t);
    run_steps(name, t, (uint32_t)about[0], (int)about[2]);
    check_state(name, t);
    trainer_close(t);
    conr_settings_free(s);
    conr_close(c);
    free(about);
}

/* On ref and cpu, the host can read device memory. */
static void ten_steps(void **state) {
    static const char *const devices[] = {"ref", "cpu"};
    (void)state;
    int cases = 0;
    assert_ok(tensors_open(golden_path("train.safetensors"), &file));
    for (int i = 0; i < file.n; i++) {
        char name[64];
        size_t n = strlen(file.tensor[i].name);
        if (n < 6 || n >= sizeof name || strcmp(file.tensor[i].name + n - 5, ".case")) continue;
        snprintf(name, sizeof name, "%.*s", (int)n - 5, file.tensor[i].name);
        for (int d = 0; d < 2; d++) one_case(name, devices[d]);
        cases++;
    }
    assert_true(cases >= 14);
    tensors_close(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ten_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
