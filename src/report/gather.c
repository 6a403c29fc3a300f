/* gather.c: makes the report of a run: reads its folder, opens its images, calls gather_*.c for
 * what the report shows and section_*.c to write it. */
#include "report/gather.h"

#include "base/file.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/output.h"
#include "base/status.h"
#include "report/gather_parts.h"
#include "report/html.h"
#include "report/section.h"
#include "report/tsne.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { POOL = 100000 }; /* images that neighbors are searched among; beyond that, a sample */

/* Neighbors, purity and the map; up to REPORT_MAP images, one search serves all three. */
static int gather_features(conr *c, report *r) {
    int rc = 0, k = 0;
    sample all = {0}, map = {0};
    lists l = {0};
    int32_t *near = NULL;
    const folder *f = r->f;
    bool whole = f->n <= REPORT_MAP;
    TRY(sample_draw(f, f->n <= POOL ? POOL : REPORT_MAP, &all));
    TRY(sample_draw(f, REPORT_MAP, &map));
    k = tsne_width(map.n, tsne_defaults().perplexity);
    TRY(lists_find(c, f, &all, whole ? k : 0, &l));
    r->pool = all.n;
    if (r->labeled) TRY(gather_purity(r, &all, &l));
    TRY(gather_queries(r, &all, &l));
    if (whole) {
        TRY(gather_map_neighbors(r, &l));
        TRY(gather_map(c, r, &map, l.near[0], l.wide, k));
        goto done;
    }
    conr_neighbors_options o = conr_neighbors_defaults();
    o.local = 1, o.k = k;
    near = memory_new("map", (size_t)map.n * k, sizeof *near);
    TRY(near ? 0 : CONR_ENOMEM);
    TRY(conr_neighbors(c, map.features, map.n, f->d, &o, near));
    TRY(gather_map(c, r, &map, near, k, k));
done:
    free(near);
    lists_free(&l);
    sample_free(&all), sample_free(&map);
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void report_free(report *r) {
    for (int k = 0; r->cluster && k < r->K; k++)
        free(r->cluster[k].central), free(r->cluster[k].boundary);
    for (int i = 0; r->picture && i < r->n_shown; i++) webp_free(&r->picture[i]);
    for (int i = 0; r->sheet && i < r->n_sheets; i++) webp_free(&r->sheet[i]);
    for (int i = 0; i < 4; i++) series_free(&r->purity[i]);
    free(r->cluster), free(r->shown), free(r->picture), free(r->sheet), free(r->kept);
    free(r->query), free(r->point), free(r->xy), free(r->map_near[0]), free(r->map_near[1]);
    conr_confusion_free(&r->confusion);
}

static int write_page(const report *r, const char *path, int64_t *bytes) {
    static const char all[] = "summary\0Summary\0clusters\0Clusters\0map\0Map\0neighbors\0Neighbors"
                              "\0curves\0Curves\0settings\0Settings\0";
    static const char flat[] = "summary\0Summary\0clusters\0Clusters\0map\0Map\0neighbors"
                               "\0Neighbors\0settings\0Settings\0"; /* nothing has a curve */
    const char *nav = section_has_curves(r) ? all : flat;
    int rc = 0;
    file_new f = {0};
    char title[PATH_MAX + 100];
    snprintf(title, sizeof title, "%s in %d clusters", folder_title(r->f), r->f->used);
    TRY(file_new_open(&f, path));
    html_head(f.stream, title, nav);
    section_write_summary(f.stream, r);
    section_write_clusters(f.stream, r);
    TRY(section_write_map(f.stream, r));
    section_write_neighbors(f.stream, r);
    if (section_has_curves(r)) section_write_curves(f.stream, r);
    section_write_settings(f.stream, r);
    html_foot(f.stream);
    *bytes = ftell(f.stream);
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    return rc;
}

/* p: NULL if there are no pictures, for the reason `why`. */
static int make(conr *c, const folder *f, const pictures *p, const char *why, const char *out,
                conr_report_result *result) {
    int rc = 0;
    report r = {.f = f, .n = f->n, .K = f->K, .no_pictures = p ? NULL : why};
    r.never_pictures = f->of_features && !p && !f->data.path;
    int64_t bytes = 0;
    TRY(gather_clusters(&r));
    TRY(gather_scores(c, &r));
    TRY(gather_features(c, &r));
    if (p) TRY(gather_pictures(c, &r, p));
    TRY(write_page(&r, out, &bytes));
    if (result)
        *result = (conr_report_result){.images = r.n,
                                       .points = r.n_points,
                                       .clusters = f->used,
                                       .pictures = p != NULL,
                                       .bytes = bytes};
done:
    report_free(&r);
    return rc;
}

int report_from_store(conr *c, const char *run, const store *images) {
    int rc = 0;
    folder f = {0};
    char out[PATH_MAX];
    pictures p = pictures_from_store(images);
    snprintf(out, sizeof out, "%s/report.html", run);
    TRY(folder_open(run, &f));
    f.done = true; /* only the report is left to do */
    TRY(folder_read_images(&f));
    if (f.n != images->n)
        TRY(fail(CONR_EFORMAT, "%s: labels.csv has %lld images, the training %lld", run,
                 (long long)f.n, (long long)images->n));
    TRY(make(c, &f, &p, NULL, out, NULL));
done:
    folder_close(&f);
    return rc;
}

int report_of_run(conr *c, const char *run, conr_images *images) {
    int rc = 0;
    folder f = {0};
    pictures found = {0}, p = {0};
    char out[PATH_MAX], why[PATH_MAX + 100] = "";
    snprintf(out, sizeof out, "%s/report.html", run);
    TRY(folder_open(run, &f));
    f.done = true; /* only the report is left to do */
    TRY(folder_read_images(&f));
    if (images)
        p = pictures_from_images(images);
    else {
        TRY(pictures_open(c, &f, NULL, &found, why, sizeof why));
        p = found;
    }
    TRY(make(c, &f, why[0] ? NULL : &p, why, out, NULL));
done:
    pictures_close(&found);
    folder_close(&f);
    return rc;
}

/* The map takes time by its points, the search for neighbors by the square of the images.  Measured
 * (docs/report.md). */
double report_seconds(int64_t n, int threads) {
    double points = n < REPORT_MAP ? (double)n : REPORT_MAP, pool = n < POOL ? (double)n : points;
    return (1.5e-3 * points + 6e-9 * pool * pool) / (threads > 1 ? threads : 1);
}

conr_report_options conr_report_defaults(void) { return (conr_report_options){0}; }

int conr_report(conr *c, const char *run, const conr_report_options *o,
                conr_report_result *result) {
    int rc = 0;
    folder_lock lock = {0};
    folder f = {0};
    pictures p = {0};
    char out[PATH_MAX], why[PATH_MAX + 100];
    snprintf(out, sizeof out, "%s/report.html", run);
    TRY(folder_lock_beside(o->out ? o->out : out, "options.yaml", &lock));
    TRY(folder_open(run, &f));
    TRY(folder_read_images(&f));
    if (o->out) TRY(output_check(o->out, NULL, run));
    TRY(pictures_open(c, &f, o->data, &p, why, sizeof why));
    if (o->out && p.images && source_has_file(&p.images->source, o->out))
        TRY(fail(CONR_EINVAL, "%s: is one of the images; write to another file", o->out));
    if (p.images && !f.data.n_classes) { /* a run older than data.json */
        f.data.class_name = p.images->source.class_name;
        f.data.n_classes = p.images->source.n_classes;
    }
    TRY(make(c, &f, why[0] ? NULL : &p, why, o->out ? o->out : out, result));
done:
    pictures_close(&p);
    folder_close(&f);
    folder_lock_drop(&lock);
    return rc;
}
