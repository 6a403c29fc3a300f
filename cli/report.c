/* report.c: conr report: one HTML file about a run, or comparing several. */
#include "cli.h"

#include "conr.h"
#include "progress.h"
#include "run.h"

#include <stdio.h>
#include <stdlib.h>

static const flag flags[] = {
    {"data", "SRC", NULL, "the images of the run, if they have moved"},
    {"out", "F.html", NULL, "the file to write; default for one run or sweep: RUN/report.html"},
    {0},
};

static int one(conr *c, const arguments *a) {
    const char *run = operand(a, 0);
    conr_report_options o = conr_report_defaults();
    conr_report_result r;
    o.data = flag_text(a, "data");
    o.out = flag_text(a, "out");
    if (conr_report(c, run, &o, &r) < 0) return library_error();
    char *usual = path_in(run, "report.html");
    const char *path = o.out ? o.out : usual;
    int rc;
    if (flag_on(a, "json")) {
        rc =
            print_json(json_pack("{so sI sI si sb sI}", "report", json_name(path), "images",
                                 (json_int_t)r.images, "points", (json_int_t)r.points, "clusters",
                                 r.clusters, "pictures", r.pictures, "bytes", (json_int_t)r.bytes));
    } else {
        print_name(path);
        printf(": %lld images in %d clusters, %.1f MB%s\n", (long long)r.images, r.clusters,
               (double)r.bytes / 1e6,
               r.pictures ? "" : ", without pictures: the images were not found");
        rc = finish_output();
    }
    free(usual);
    return rc;
}

static int several(conr *c, const arguments *a) {
    int n = operand_count(a), rc;
    if (n > 1 && !flag_text(a, "out"))
        return usage_error("--out: is missing; give a file for the comparison, F.html");
    if (flag_text(a, "data"))
        return usage_error("--data: a comparison shows no images; leave it out");
    const char **runs = calloc((size_t)n, sizeof *runs);
    if (!runs) return failed("report: out of memory; close other programs");
    char *usual = path_in(operand(a, 0), "report.html");
    const char *out = flag_text(a, "out") ? flag_text(a, "out") : usual;
    for (int i = 0; i < n; i++) runs[i] = operand(a, i);
    if (conr_report_compare(c, runs, n, out) < 0) {
        rc = library_error();
    } else if (flag_on(a, "json")) {
        rc = print_json(json_pack("{so}", "report", json_name(out)));
    } else {
        print_name(out);
        putchar('\n');
        rc = finish_output();
    }
    free(usual);
    free(runs);
    return rc;
}

static int run(const arguments *a) {
    int threads, rc;
    conr *c;
    if ((rc = flag_int(a, "threads", 0, 1024, &threads))) return rc;
    if (conr_open(flag_text(a, "device"), threads, &c) < 0) return library_error();
    progress_start(c, flag_on(a, "quiet"));
    bool alone = operand_count(a) == 1 && !run_has(operand(a, 0), "sweep.json");
    rc = alone ? one(c, a) : several(c, a);
    conr_close(c);
    return rc;
}

const verb verb_report = {
    .name = "report",
    .operands = "RUN [--data SRC] [--out F.html] | RUN1 RUN2 ... --out F.html",
    .summary = "Write an HTML report of a run: clusters, a map, neighbors, curves",
    .text =
        "Writes RUN/report.html, a single file that needs no network: what was done, central and\n"
        "boundary images of every cluster, a map of all images, neighbors, curves.  Training\n"
        "writes it anyway; this verb writes it again.  For several runs, or the folder of a "
        "sweep,\n"
        "it compares them: a table of mean and deviation, scores over the settings, curves.\n"
        "\nExample: conr report runs/photos\n"
        "         conr report runs/fr0 runs/fr0-again --out fr0.html\n",
    .low = 1,
    .high = -1,
    .flags = flags,
    .run = run,
};
