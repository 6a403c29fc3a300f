/* folder.c: see folder.h. */
#include "report/folder.h"

#include "base/checksum.h"
#include "base/csv.h"
#include "base/npy.h"
#include "base/status.h"
#include "edits/edits.h"
#include "json/json.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *keep(folder *f, const char *text) {
    return text ? arena_text(&f->memory, text, strlen(text)) : NULL;
}

static char *path_of(const folder *f, const char *name) {
    char *path = NULL;
    return asprintf(&path, "%s/%s", f->path, name) < 0 ? NULL : path;
}

/* ---- log.jsonl ------------------------------------------------------------------------------- */

static int add(series *s, double epoch, const json_t *line, const char *key) {
    const json_t *v = json_object_get(line, key);
    return json_is_number(v) ? series_add(s, epoch, json_number_value(v)) : 0;
}

static int add_warning(folder *f, const char *text) {
    static const char word[] = "warning: ";
    folder_log *l = &f->log;
    const char **more = realloc(l->warning, ((size_t)l->n_warnings + 1) * sizeof *more);
    if (!more) return fail_memory("log", 8.0 * l->n_warnings);
    l->warning = more;
    if (!strncmp(text, word, sizeof word - 1)) text += sizeof word - 1;
    const char *kept = keep(f, text);
    if (!kept) return CONR_ENOMEM;
    l->warning[l->n_warnings++] = kept;
    return 0;
}

static double number_at(const json_t *line, const char *side, const char *what) {
    char key[64];
    snprintf(key, sizeof key, "%s_%s", side, what);
    const json_t *v = json_object_get(line, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static struct folder_side read_side(const json_t *line, const char *side) {
    return (struct folder_side){
        number_at(line, side, "nmi"),       number_at(line, side, "acc"),
        number_at(line, side, "ari"),       number_at(line, side, "agreement"),
        number_at(line, side, "confirmed"), number_at(line, side, "silhouette"),
        number_at(line, side, "stability"),
    };
}

static bool add_baseline(folder_log *l, const json_t *line) {
    const char *event = json_string_value(json_object_get(line, "event"));
    if (!event || strcmp(event, "baseline")) return false;
    l->baseline = json_integer_value(json_object_get(line, "images"));
    l->training = read_side(line, "training");
    l->descriptor = read_side(line, "descriptor");
    return true;
}

static int add_line(folder *f, const json_t *line) {
    folder_log *l = &f->log;
    const char *warning = json_string_value(json_object_get(line, "warning"));
    const char *note = json_string_value(json_object_get(line, "note"));
    double epoch = json_number_value(json_object_get(line, "epoch")), v;
    int rc = 0;
    if (warning) return add_warning(f, warning);
    if (note) return (l->note = keep(f, note)) ? 0 : CONR_ENOMEM;
    if (add_baseline(l, line)) return 0;
    if (json_object_get(line, "objective")) { /* an evaluation: its warnings follow */
        l->earlier += l->n_warnings;
        l->n_warnings = 0;
    }
    TRY(add(&l->loss, epoch, line, "loss"));
    TRY(add(&l->lr, epoch, line, "lr"));
    TRY(add(&l->nmi, epoch, line, "nmi"));
    TRY(add(&l->acc, epoch, line, "acc"));
    TRY(add(&l->ari, epoch, line, "ari"));
    TRY(add(&l->knn, epoch, line, "knn"));
    TRY(add(&l->silhouette, epoch, line, "silhouette"));
    TRY(add(&l->stability, epoch, line, "stability"));
    TRY(add(&l->agreement, epoch, line, "neighbor_agreement"));
    TRY(add(&l->modularity, epoch, line, "modularity"));
    TRY(add(&l->gap, epoch, line, "gap"));
    if ((v = json_number_value(json_object_get(line, "seconds"))) > 0) l->seconds = v;
    if ((v = json_number_value(json_object_get(line, "images_per_s"))) > 0) {
        /* the mean over all steps, as conr train prints it: each line covers those since the last */
        double step = json_number_value(json_object_get(line, "step")), steps = step - l->step;
        if (steps > 0) l->waited += steps / v, l->counted += steps;
        if (l->waited > 0) l->images_per_s = l->counted / l->waited;
        l->step = step;
    }
done:
    return rc;
}

static int read_log(folder *f) {
    int rc = 0;
    char *path = path_of(f, "log.jsonl"), *line = NULL;
    size_t room = 0;
    bool scarce;
    if (!path) return fail_memory(f->path, 4096);
    FILE *stream = fopen(path, "r");
    if (!stream && errno != ENOENT) /* a run without a log can be shown */
        TRY(fail(CONR_EFILE, "%s: cannot be read: %s; check the disk", path, strerror(errno)));
    /* a read that fails in the middle of a line still yields its beginning */
    while (stream && rc == 0 && (errno = 0, getline(&line, &room, stream)) > 0 && !ferror(stream)) {
        json_t *object = json_read(line, &scarce); /* skips a line that was cut short */
        if (scarce) rc = fail_memory(path, (double)room);
        if (json_is_object(object)) rc = add_line(f, object);
        json_decref(object);
    }
    if (rc == 0 && stream &&
        (ferror(stream) || !feof(stream))) /* what is missing would not be seen */
        rc = fail(CONR_EFILE, "%s: cannot be read: %s; check the disk", path, strerror(errno));
done:
    if (stream) fclose(stream);
    free(line);
    free(path);
    return rc;
}

/* ---- the folder ----------------------------------------------------------------------------- */

/* Everything that such a run does not have keeps its default. */
static int read_made(folder *f) {
    conr_settings *s = NULL;
    int rc = conr_settings_new(&s);
    if (rc < 0) return rc;
    f->o = s->o;
    features_as_training(&f->made, &f->o);
    conr_settings_free(s);
    return 0;
}

int folder_open(const char *path, folder *out) {
    int rc = 0;
    static const char *const read[] = {"options.yaml", "log.jsonl", "data.json"};
    char *options = NULL, *done = NULL, *data = NULL;
    struct stat about;
    *out = (folder){0};
    out->path = keep(out, path);
    if (!out->path) return CONR_ENOMEM;
    /* the last part, also of "runs/photos/" and of "." */
    char *real = realpath(path, NULL);
    if (!real && errno == ENOMEM) TRY(fail_memory(path, PATH_MAX));
    const char *slash = real ? strrchr(real, '/') : NULL;
    out->name = keep(out, slash && slash[1] ? slash + 1 : path);
    free(real);
    options = path_of(out, "options.yaml"), done = path_of(out, "DONE");
    data = path_of(out, "data.json");
    if (!options || !done || !data || !out->name) TRY(fail_memory(path, 4096));
    if (stat(options, &about))
        TRY(fail(
            CONR_EFILE,
            "%s: holds no run (no options.yaml); give the --out folder of conr cluster or train",
            path));
    TRY(features_read(&out->made, options));
    out->of_features = rc == 1;
    if (out->of_features)
        TRY(read_made(out));
    else
        TRY(settings_read(&out->o, options));
    out->done = stat(done, &about) == 0;
    TRY(read_log(out));
    TRY(data_read(data, &out->memory, &out->data));
    for (int i = 0; i < 3; i++) TRY(checksum_check(path, read[i], "DONE"));
done:
    free(options), free(done), free(data);
    if (rc < 0) folder_close(out);
    return rc;
}

/* ---- labels.csv ------------------------------------------------------------------------------ */

static bool number(const char *text, double low, double high, double *out) {
    char *end;
    *out = strtod(text, &end);
    return end != text && *out >= low && *out <= high;
}

static int parse_row(folder *f, const csv *c, bool labeled) {
    int64_t i = f->n;
    double cluster, distance, boundary, label = -1;
    if (!number(c->cell[1], 0, 1e6, &cluster) || !number(c->cell[2], -1, 10, &distance) ||
        !number(c->cell[3], -1, 3, &boundary) || (labeled && !number(c->cell[4], -1, 1e9, &label)))
        return fail(CONR_EFORMAT, "%s: row %lld is not one of a labels.csv; repeat the run",
                    c->name, (long long)c->row);
    if (!(f->image[i] = keep(f, c->cell[0]))) return CONR_ENOMEM;
    f->cluster[i] = (int32_t)cluster;
    f->distance[i] = (float)distance;
    f->boundary[i] = (float)boundary;
    if (labeled) f->label[i] = (int64_t)label;
    if (f->cluster[i] >= f->K) f->K = f->cluster[i] + 1;
    f->n = i + 1;
    return 0;
}

/* Whether the current row has the titles of a labels.csv. */
static bool has_titles(const csv *c) {
    static const char *const titles[] = {"path", "cluster", "distance", "boundary", "label"};
    if (c->n_cells < 4 || c->n_cells > 5) return false;
    for (size_t i = 0; i < c->n_cells; i++)
        if (strcmp(c->cell[i], titles[i])) return false;
    return true;
}

static int read_labels(folder *f, const char *path) {
    int rc = 0;
    csv c;
    TRY(csv_open(path, &c));
    TRY(csv_next(&c));
    if (rc == 0 || !has_titles(&c))
        TRY(fail(CONR_EFORMAT,
                 "%s: its columns are not path,cluster,distance,boundary; repeat the run", path));
    bool labeled = c.n_cells == 5, any = false;
    f->image = calloc(c.most, sizeof *f->image);
    f->cluster = calloc(c.most, sizeof *f->cluster);
    f->distance = calloc(c.most, sizeof *f->distance);
    f->boundary = calloc(c.most, sizeof *f->boundary);
    f->label = labeled ? calloc(c.most, sizeof *f->label) : NULL;
    if (!f->image || !f->cluster || !f->distance || !f->boundary || (labeled && !f->label))
        TRY(fail_memory(path, 32.0 * (double)c.most));
    while ((rc = csv_next(&c)) > 0) TRY(parse_row(f, &c, labeled));
    TRY(rc);
    if (f->n == 0) TRY(fail(CONR_EFORMAT, "%s: has no images; repeat the run", path));
    for (int64_t i = 0; labeled && i < f->n; i++) any = any || f->label[i] >= 0;
    if (!any) free(f->label), f->label = NULL;
done:
    csv_close(&c);
    return rc;
}

/* The clusters as a person made them; marked images become clusters of their own, after the others. */
static int read_edits(folder *f) {
    int rc = 0;
    conr_edits *e = NULL;
    conr_edits_info about;
    bool marked[3] = {0};
    TRY(edits_of_run(f->path, &e));
    if (!e) return 0;
    conr_edits_about(e, &about);
    if (about.n != f->n)
        TRY(fail(CONR_EFORMAT, "%s: its edits are of %lld images, not %lld; repeat the run",
                 f->path, (long long)about.n, (long long)f->n));
    f->found = f->K, f->decisions = about.done, f->K = about.next;
    for (int64_t i = 0; i < f->n; i++) {
        int mark = conr_edits_marks(e)[i];
        marked[mark] = true;
        f->cluster[i] = mark ? about.next + mark - 1 : conr_edits_labels(e)[i];
    }
    f->K = about.next + (marked[CONR_MARK_WRONG] ? 2 : marked[CONR_MARK_OUTLIER] ? 1 : 0);
    f->cluster_name = arena_alloc(&f->memory, ((size_t)f->K + 1) * sizeof *f->cluster_name);
    if (!f->cluster_name) TRY(CONR_ENOMEM);
    for (int k = 0; k < about.next; k++) {
        const char *name = conr_edits_name(e, k);
        if (name && !(f->cluster_name[k] = keep(f, name))) TRY(CONR_ENOMEM);
    }
    if (f->K > about.next) f->cluster_name[about.next] = "Outliers";
    if (f->K > about.next + 1) f->cluster_name[about.next + 1] = "Wrong";
    f->used = about.clusters;
done:
    conr_edits_close(e);
    return rc;
}

const char *folder_cluster(const folder *f, int k) {
    static _Thread_local char text[4][32];
    static _Thread_local unsigned at;
    if (f->cluster_name && k >= 0 && k < f->K && f->cluster_name[k]) return f->cluster_name[k];
    char *out = text[at++ % 4];
    snprintf(out, sizeof text[0], "Cluster %d", k);
    return out;
}

int folder_read_labels(folder *f) {
    int rc = 0;
    struct stat about;
    const char *base = edits_base(f->path);
    char *labels = path_of(f, base);
    if (!labels) TRY(fail_memory(f->path, 4096));
    if (stat(labels, &about))
        TRY(fail(CONR_EFILE, "%s: has no results yet; has its training finished?", f->path));
    TRY(read_labels(f, labels));
    /* once it is read: a file that shrinks meanwhile is noticed as well */
    TRY(checksum_check(f->path, base, "DONE"));
done:
    free(labels);
    return rc;
}

int folder_read_images(folder *f) {
    int rc = 0;
    int64_t n = 0;
    struct stat about;
    char *features = path_of(f, "embeddings.npy");
    if (!features) TRY(fail_memory(f->path, 4096));
    if (stat(features, &about))
        TRY(fail(CONR_EFILE, "%s: has no results yet; has its training finished?", f->path));
    TRY(folder_read_labels(f));
    TRY(npy_read_features(features, &f->features, &n, &f->d));
    TRY(checksum_check(f->path, "embeddings.npy", "DONE"));
    if (n != f->n)
        TRY(fail(CONR_EFORMAT, "%s: %lld rows, but labels.csv has %lld images; repeat the run",
                 features, (long long)n, (long long)f->n));
    f->used = f->K;
    TRY(read_edits(f));
done:
    free(features);
    return rc;
}

void folder_close(folder *f) {
    series *all[] = {&f->log.loss,      &f->log.lr,         &f->log.nmi,        &f->log.acc,
                     &f->log.ari,       &f->log.knn,        &f->log.silhouette, &f->log.stability,
                     &f->log.agreement, &f->log.modularity, &f->log.gap};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) series_free(all[i]);
    free(f->log.warning);
    free(f->image), free(f->cluster), free(f->distance), free(f->boundary), free(f->label);
    free(f->features);
    arena_free(&f->memory);
    *f = (folder){0};
}

const char *folder_title(const folder *f) {
    const char *path = f->data.path;
    if (!path && f->of_features && f->made.from[0]) path = f->made.from;
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash && slash[1] ? slash + 1 : path ? path : f->name;
}

const char *folder_class(const folder *f, int64_t label) {
    static _Thread_local char text[4][32];
    static _Thread_local unsigned at;
    const char *name = label >= 0 && label < f->data.n_classes ? f->data.class_name[label] : NULL;
    if (name && name[strspn(name, "0123456789")]) return name;
    char *out = text[at++ % 4]; /* a bare number would not be understood as a class */
    if (name && strlen(name) < 16)
        snprintf(out, sizeof text[0], "class %s", name);
    else
        snprintf(out, sizeof text[0], label < 0 ? "no label" : "class %lld", (long long)label);
    return out;
}

size_t folder_shared(const char *const *name, int64_t n) {
    size_t shared = n ? strlen(name[0]) : 0;
    for (int64_t i = 1; i < n; i++) {
        size_t k = 0;
        while (k < shared && name[i][k] == name[0][k]) k++;
        shared = k;
    }
    while (shared > 0 && name[0][shared - 1] != '/') shared--;
    return shared;
}
