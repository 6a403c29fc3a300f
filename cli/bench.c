/* bench.c: conr bench: measures this machine. */
#include "cli.h"

#include "conr.h"

#include <stdio.h>
#include <string.h>

static const flag flags[] = {
    {"seconds", "S", "0.2", "time spent on one case"},
    {0},
};

static void print_row(const conr_bench_row *r, void *user) {
    (void)user;
    printf("%-20s %-34s %10.3f", r->op, r->shape, 1e3 * r->seconds);
    printf(r->flops > 0 ? " %9.1f GFLOP/s" : " %9.1f GB/s   ",
           (r->flops > 0 ? r->flops : r->bytes) / r->seconds * 1e-9);
    printf(" %6.1f %%", 100 * r->share);
    if (r->error >= 0)
        printf("  %8.1e  %s\n", r->error, r->error <= r->bound ? "ok" : "WRONG");
    else
        printf("  %8s\n", "-");
    fflush(stdout);
}

static void add_row(const conr_bench_row *r, void *user) {
    json_array_append_new(user,
                          json_pack("{ss ss sf sf sf sf sf sf}", "op", r->op, "shape", r->shape,
                                    "seconds", r->seconds, "flops", r->flops, "bytes", r->bytes,
                                    "share", r->share, "error", r->error, "bound", r->bound));
}

static int bench_ops(conr *c, double seconds, bool json) {
    double flops, bytes;
    if (conr_bench_peaks(c, &flops, &bytes) < 0) return library_error();
    if (json) {
        json_t *rows = json_array();
        int rc = conr_bench_ops(c, seconds, add_row, rows);
        int printed = print_json(json_pack("{ss ss sf sf so}", "version", conr_version(), "device",
                                           conr_device(c), "peak_flops", flops, "peak_copy_bytes",
                                           bytes, "rows", rows));
        return rc < 0 ? library_error() : printed;
    }
    printf("%s; measured peaks: %.1f GFLOP/s of FMA, %.1f GB/s of copying\n", conr_device(c),
           flops * 1e-9, bytes * 1e-9);
    printf("%-20s %-34s %10s %17s %8s  %8s\n", "operation", "shape", "ms", "rate", "of peak",
           "error");
    if (conr_bench_ops(c, seconds, print_row, NULL) < 0) return library_error();
    return finish_output();
}

static int run(const arguments *a) {
    const char *what = operand_count(a) ? operand(a, 0) : "ops";
    int threads, rc;
    double seconds;
    if (strcmp(what, "ops")) return usage_error("bench %s: no such benchmark; use ops", what);
    if ((rc = flag_int(a, "threads", 0, 1024, &threads))) return rc;
    if ((rc = flag_number(a, "seconds", 0, 3600, &seconds))) return rc;
    conr *c;
    if (conr_open(flag_text(a, "device"), threads, &c) < 0) return library_error();
    rc = bench_ops(c, seconds, flag_on(a, "json"));
    conr_close(c);
    return rc;
}

const verb verb_bench = {
    .name = "bench",
    .operands = "[ops]",
    .summary = "measure this machine and check its operations",
    .text =
        "  ops   every operation of the device on the shapes that the tests check: time, rate,\n"
        "        share of this machine's measured peak, and the error against the reference.\n"
        "\nExample: conr bench ops --device cpu --threads 2\n",
    .high = 1,
    .flags = flags,
    .run = run,
};
