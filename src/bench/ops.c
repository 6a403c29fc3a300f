/* ops.c: benchmarks of single operations: the peaks of this machine, then every operation of a
 * device, checked against ref and timed on the one list of cases. */
#include "context/context.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "device/cases.h"
#include "device/peak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int conr_bench_peaks(conr *c, double *flops, double *bytes) {
    if (c->dev->op.peaks && c->peak_flops == 0) {
        int rc = c->dev->op.peaks(c->dev, &c->peak_flops, &c->peak_copies);
        if (rc < 0) return rc;
    }
    if (bytes && c->peak_copies == 0) {
        int rc = peak_copies(c->dev->threads, &c->peak_copies);
        if (rc < 0) return rc;
    }
    if (c->peak_flops == 0) c->peak_flops = peak_flops(c->dev->threads);
    *flops = c->peak_flops;
    if (bytes) *bytes = c->peak_copies;
    return 0;
}

/* The best time of a run, repeated for about `seconds` but at least once. */
static int time_trial(trial *t, device *dev, double seconds, double *best) {
    int rc = 0;
    double start = clock_now();
    *best = 1e30;
    for (int i = 0; i < 1 || clock_now() - start < seconds; i++) {
        double before = clock_now();
        TRY(trial_run(t));
        TRY(dev->op.sync(dev));
        double took = clock_now() - before;
        if (took < *best) *best = took;
    }
done:
    return rc;
}

/* The error of a case against ref, at the small size; -1 if the device is ref itself. */
static int check_case(device *dev, device *ref, const op_case *c, double *error) {
    int rc = 0;
    trial *got = NULL, *want = NULL;
    *error = -1;
    if (!ref) return 0;
    TRY(trial_new(dev, c, c->check_n, &got));
    TRY(trial_new_as(ref, dev->type, c, c->check_n, &want));
    TRY(trial_run(got));
    TRY(trial_run(want));
    TRY(trial_compare(got, want, error));
done:
    trial_free(got);
    trial_free(want);
    return rc;
}

/* ref is timed at the small size: it would take minutes at the large one. */
static int bench_case(conr *c, device *ref, const op_case *k, double seconds, conr_bench_row *row) {
    int rc = 0, n = ref ? k->time_n : k->check_n;
    trial *t = NULL;
    double flops, bytes;
    TRY(conr_bench_peaks(c, &flops, &bytes));
    TRY(check_case(c->dev, ref, k, &row->error));
    TRY(trial_new(c->dev, k, n, &t));
    TRY(time_trial(t, c->dev, seconds, &row->seconds));
    row->op = case_name(k);
    row->flops = case_flops(k, n);
    row->bytes = case_bytes(k, n);
    row->bound = case_bound(k, k->check_n, c->dev->type);
    row->share = (row->flops > 0 ? row->flops / flops : row->bytes / bytes) / row->seconds;
done:
    trial_free(t);
    return rc;
}

int conr_bench_ops(conr *c, const char *only, double seconds_per_case, conr_on_bench *on_row,
                   void *user) {
    int rc = 0, wrong = 0, run = 0;
    device *ref = NULL;
    if (!c->dev->is_ref) TRY(device_open("ref", 1, &ref));
    for (int i = 0; i < case_count; i++) {
        char shape[96], line[160];
        conr_bench_row row = {.shape = shape};
        int n = ref ? case_list[i].time_n : case_list[i].check_n;
        case_shape_text(&case_list[i], n, shape, sizeof shape);
        snprintf(line, sizeof line, "%s %s", case_name(&case_list[i]), shape);
        if (only && !strstr(line, only)) continue;
        TRY(bench_case(c, ref, &case_list[i], seconds_per_case, &row));
        run++;
        wrong += row.error > row.bound;
        if (on_row) on_row(&row, user);
    }
    if (wrong)
        rc = fail(CONR_ENUMBER,
                  "%s: %d of %d operations differ from the reference by more than their bound; "
                  "please report this machine",
                  c->dev->name, wrong, run);
    else if (run == 0)
        rc = fail(CONR_EINVAL,
                  "only %s: matches no operation or shape; leave it out to list them all", only);
done:
    device_close(ref);
    return rc;
}
