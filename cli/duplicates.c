/* duplicates.c: conr duplicates: groups of images that are copies of each other. */
#include "cli.h"

#include "conr.h"
#include "data.h"
#include "progress.h"
#include "run.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const flag flags[] = {
    {"out", "F.csv", NULL, "the CSV file to write, one row per image that has a copy"},
    {"threshold", "T", "0.97", "how alike copies are, 0.9 to 1; 1: only those with the same bytes"},
    DATA_FLAGS,
    {0},
};

/* What is done, and with what. */
typedef struct work {
    conr_images *m;
    conr_looks *looks;
    conr_duplicate *found; /* [n] */
    int64_t n, copies, identical;
    int groups;
} work;

/* A cell of a CSV, as the library writes it. */
static void write_cell(FILE *f, const char *text) {
    bool quoted = !*text || strpbrk(text, ",\"\r\n") || *text == ' ' || *text == '\t' ||
                  (unsigned char)*text == 0xEF || text[strlen(text) - 1] == ' ';
    if (quoted) fputc('"', f);
    for (; *text; text++) {
        if (*text == '"') fputc('"', f);
        fputc(*text, f);
    }
    if (quoted) fputc('"', f);
}

static void write_row(FILE *f, const work *w, int64_t i) {
    const conr_duplicate *d = &w->found[i];
    conr_look l;
    conr_looks_get(w->looks, i, &l);
    fprintf(f, "%d,", d->group);
    write_cell(f, conr_images_path(w->m, i));
    fprintf(f, ",%s,%.4f,%d,%d,%lld,%.4f,", d->identical ? "identical" : "near", d->similarity,
            l.width, l.height, (long long)l.bytes, l.sharpness);
    write_cell(f, conr_images_path(w->m, d->keep));
    fputc('\n', f);
}

typedef struct ordered {
    int32_t group;
    int64_t image;
} ordered;

static int by_group(const void *a, const void *b) {
    const ordered *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    return (x->image > y->image) - (x->image < y->image);
}

/* Group by group. */
static int write_groups(const work *w, const char *out) {
    char *text = NULL;
    size_t size = 0;
    int64_t m = 0;
    ordered *order = malloc(((size_t)w->copies + 1) * sizeof *order);
    FILE *f = order ? open_memstream(&text, &size) : NULL;
    bool bad = !f;
    if (f) {
        for (int64_t i = 0; i < w->n; i++)
            if (w->found[i].group >= 0) order[m++] = (ordered){w->found[i].group, i};
        qsort(order, (size_t)m, sizeof *order, by_group);
        fputs("group,path,kind,similarity,width,height,bytes,sharpness,keep\n", f);
        for (int64_t j = 0; j < m; j++) write_row(f, w, order[j].image);
        bad = ferror(f);
        bad = fclose(f) || bad;
    }
    int rc = EXIT_OK;
    if (bad)
        rc = failed("%s: out of memory; close other programs", out);
    else if (conr_write_bytes(out, text, (int64_t)size) < 0)
        rc = library_error();
    free(order), free(text);
    return rc;
}

static int open_images(const arguments *a, conr *c, work *w) {
    const char *src = operand(a, 0);
    conr_images_options io;
    int64_t *at = NULL, n;
    int rc = data_options(a, &io);
    if (rc) return rc;
    if (!run_has(src, "options.yaml")) return data_open(c, src, &io, &w->m);
    rc = conr_run_images(c, src, NULL, &w->m, &at, &n) < 0 ? library_error() : EXIT_OK;
    conr_free(at);
    return rc;
}

static int find(const arguments *a, conr *c, double threshold, work *w) {
    if (conr_looks_make(c, w->m, &w->looks) < 0) return library_error();
    w->n = conr_looks_get(w->looks, 0, NULL);
    if (!(w->found = malloc(((size_t)w->n + 1) * sizeof *w->found)))
        return failed("%s: out of memory; close other programs", operand(a, 0));
    if (conr_duplicates(c, w->looks, threshold, w->found, &w->groups) < 0) return library_error();
    progress_end();
    for (int64_t i = 0; i < w->n; i++) {
        w->copies += w->found[i].group >= 0;
        w->identical += w->found[i].group >= 0 && w->found[i].identical;
    }
    return EXIT_OK;
}

static int print_result(const arguments *a, const work *w) {
    const char *out = flag_text(a, "out");
    int64_t spare = w->copies - w->groups;
    if (flag_on(a, "json"))
        return print_json(json_pack("{so sI si sI sI sI}", "out", json_name(out), "n",
                                    (json_int_t)w->n, "groups", w->groups, "images",
                                    (json_int_t)w->copies, "identical", (json_int_t)w->identical,
                                    "spare", (json_int_t)spare));
    printf("%d groups of copies among %lld images: %lld images are in them, %lld with the same "
           "bytes as another; %lld could go\n",
           w->groups, (long long)w->n, (long long)w->copies, (long long)w->identical,
           (long long)spare);
    return finish_output();
}

static int run(const arguments *a) {
    conr *c = NULL;
    work w = {0};
    double threshold;
    int threads, rc;
    if (!flag_text(a, "out")) return usage_error("--out: is missing; give the file to write");
    if ((rc = flag_int(a, "threads", 0, 1024, &threads)) ||
        (rc = flag_number(a, "threshold", 0.9, 1, &threshold)))
        return rc;
    if (conr_open("cpu", threads, &c) < 0) return library_error();
    progress_start(c, flag_on(a, "quiet"));
    if ((rc = open_images(a, c, &w)) == EXIT_OK &&
        (rc = data_refuse_output(flag_text(a, "out"), NULL, w.m)) == EXIT_OK &&
        (rc = find(a, c, threshold, &w)) == EXIT_OK &&
        (rc = write_groups(&w, flag_text(a, "out"))) == EXIT_OK)
        rc = print_result(a, &w);
    free(w.found);
    conr_looks_free(w.looks);
    conr_images_close(w.m);
    conr_close(c);
    return rc;
}

const verb verb_duplicates = {
    .name = "duplicates",
    .operands = "SRC|RUN --out F.csv [--threshold T]",
    .summary = "Find images that are copies of each other",
    .text = "Finds groups of images with the same bytes, and of images that are copies of each\n"
            "other: encoded again, resized, or cropped a little.  Names in each group the one to\n"
            "keep, which has the most pixels and is the sharpest.  Nothing is removed.\n"
            "The columns: group, path, kind (identical or near), similarity to the most similar\n"
            "one of the group, width, height, bytes, sharpness, and the path to keep.\n"
            "\nExample: conr duplicates photos/ --out copies.csv\n",
    .low = 1,
    .high = 1,
    .flags = flags,
    .run = run,
};
