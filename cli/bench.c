/* bench.c: conr bench: measures this machine. */
#include "cli.h"

#include "conr.h"

#include <stdio.h>
#include <string.h>

static const flag flags[] = {
    {"seconds", "S", "0.2", "time to spend per case; train: on all steps, 3 by default"},
    {"only", "TEXT", NULL, "ops: only operations and shapes that contain this: \"x64 -> 64, 3x3\""},
    {"encoder", "NAME", "resnet18", "train: resnet18, resnet34, resnet50, resnet101 or small"},
    {"stem", "NAME", "cifar", "train: cifar or imagenet; small has its own"},
    {"width", "N", "64", "train: channels of the first stage"},
    {"size", "N", "32", "train: side of the images, in pixels"},
    {"channels", "N", "3", "train: 1 or 3"},
    {"batch", "N", "32", "train: images per step, over all ranks"},
    {"forward", NULL, NULL, "train: only the forward pass, as for features"},
    {"byol", NULL, NULL, "train: a whole step of stage 1, views included"},
    {"conr", NULL, NULL, "train: a whole step of stage 2, with neighborhoods and filter"},
    {"hidden", "N", "4096", "train --byol, --conr: width of the heads"},
    {"features", "N", "256", "train --byol, --conr: number of features"},
    {"blur", "P", "0", "feed: probability of a blur"},
    {"device-images", "MIB", "0", "feed: memory of a GPU that images may take; 0: a third of it"},
    {"recompute", NULL, NULL, "train: save memory at a small cost in time"},
    {0},
};

/* The head of the table: printed with the first row, so that an error is not preceded by it. */
typedef struct table {
    const char *device;
    double flops, bytes; /* peaks */
    bool begun;
} table;

static void print_row(const conr_bench_row *r, void *user) {
    table *t = user;
    if (!t->begun) {
        printf("%s; measured peaks: %.1f GFLOP/s (FMA), %.1f GB/s (copy)\n", t->device,
               t->flops * 1e-9, t->bytes * 1e-9);
        printf("%-20s %-34s %10s %17s %8s  %8s\n", "operation", "shape", "ms", "rate", "of peak",
               "error");
        t->begun = true;
    }
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
    json_t **rows = user;
    *rows = json_push(*rows, json_pack("{ss ss sf sf sf sf sf sf}", "op", r->op, "shape", r->shape,
                                       "seconds", r->seconds, "flops", r->flops, "bytes", r->bytes,
                                       "share", r->share, "error", r->error, "bound", r->bound));
}

/* Runs one of the benchmarks that give rows. */
static int measure(conr *c, const char *what, const char *only, double seconds,
                   conr_on_bench *on_row, void *user) {
    if (!strcmp(what, "neighbors")) return conr_bench_neighbors(c, 0, on_row, user);
    if (!strcmp(what, "kmeans")) return conr_bench_kmeans(c, 0, on_row, user);
    return conr_bench_ops(c, only, seconds, on_row, user);
}

static int bench_rows(conr *c, const char *what, const char *only, double seconds, bool json) {
    table t = {.device = conr_device(c)};
    if (conr_bench_peaks(c, &t.flops, &t.bytes) < 0) return library_error();
    if (json) {
        json_t *rows = json_array();
        int rc = measure(c, what, only, seconds, add_row, &rows);
        if (rc < 0 && !json_array_size(rows)) {
            json_decref(rows);
            return library_error();
        }
        int printed =
            print_json(json_pack("{ss ss sf sf so}", "version", conr_version(), "device", t.device,
                                 "peak_flops", t.flops, "peak_copy_bytes", t.bytes, "rows", rows));
        return rc < 0 ? library_error() : printed;
    }
    if (measure(c, what, only, seconds, print_row, &t) < 0) return library_error();
    return finish_output();
}

/* The step that the flags describe. */
static int train_flags(const arguments *a, conr_bench_train_options *o) {
    int rc;
    *o = conr_bench_train_defaults();
    o->encoder = flag_text(a, "encoder");
    o->stem = flag_text(a, "stem");
    o->byol = flag_on(a, "byol");
    o->forward = flag_on(a, "forward");
    o->conr = flag_on(a, "conr");
    o->recompute = flag_on(a, "recompute");
    if ((rc = flag_int(a, "width", 1, 1024, &o->width)) ||
        (rc = flag_int(a, "size", 16, 4096, &o->size)) ||
        (rc = flag_int(a, "channels", 1, 3, &o->channels)) ||
        (rc = flag_int(a, "batch", 1, 1 << 20, &o->batch)) ||
        (rc = flag_int(a, "hidden", 1, 1 << 20, &o->hidden)) ||
        (rc = flag_int(a, "features", 1, 1 << 20, &o->features)))
        return rc;
    return flag_on(a, "seconds") ? flag_number(a, "seconds", 0, 3600, &o->seconds) : 0;
}

static void print_feed(const conr_bench_feed_options *o, const conr_bench_feed_result *r,
                       const char *device) {
    double batch = r->step.images;
    printf("%s; %s, %d pixels, batch %d, a BYOL step with two views\n", device, o->train.encoder,
           o->train.size, o->train.batch);
    printf("%.0f images: %s of the host, decoded in %.1f s; %s, %.0f MiB\n", r->images, r->stored,
           r->load, !strcmp(r->fed, "host") ? "views are made by the host" : r->fed,
           r->bytes / (1 << 20));
    printf("the step alone  %9.2f ms %10.1f images/s   best of %d, on noise\n",
           1e3 * r->step.seconds, batch / r->step.seconds, r->step.steps);
    printf("training        %9.2f ms %10.1f images/s   mean of %d, %.1f %% of the step alone\n",
           1e3 * r->seconds, batch / r->seconds, r->steps, 100 * r->step.seconds / r->seconds);
    printf("  waiting for images %9.2f ms, the thread that queues is busy for %.2f ms\n",
           1e3 * r->waited, 1e3 * r->queueing);
    if (r->embedding > 0) printf("embedding       %23.1f images/s\n", 1 / r->embedding);
    for (int i = 0; i < r->n_parts; i++) {
        double alone = 0;
        for (int k = 0; k < r->step.n_parts; k++)
            if (!strcmp(r->step.part[k].name, r->part[i].name)) alone = r->step.part[k].share;
        printf("  %-30s %5.1f %%   alone %5.1f %%\n", r->part[i].name, 100 * r->part[i].share,
               100 * alone);
    }
}

static int feed_json(const conr_bench_feed_options *o, const conr_bench_feed_result *r,
                     const char *device) {
    json_t *parts = json_object();
    for (int i = 0; i < r->n_parts; i++)
        parts = json_put(parts, r->part[i].name, json_real(r->part[i].share));
    return print_json(json_pack(
        "{ss ss ss si si sf sf ss ss sf sf sf sf sf sf sf sf so}", "version", conr_version(),
        "device", device, "encoder", o->train.encoder, "size", o->train.size, "batch",
        o->train.batch, "images", r->images, "load_seconds", r->load, "stored", r->stored, "fed",
        r->fed, "bytes", r->bytes, "step_seconds", r->step.seconds, "step_images_per_second",
        r->step.images / r->step.seconds, "seconds", r->seconds, "images_per_second",
        r->step.images / r->seconds, "waited_seconds", r->waited, "queueing_seconds", r->queueing,
        "embedding_images_per_second", r->embedding > 0 ? 1 / r->embedding : 0.0, "parts", parts));
}

static int bench_feed(conr *c, const arguments *a) {
    conr_bench_feed_options o = conr_bench_feed_defaults();
    conr_images_options all = conr_images_defaults();
    conr_bench_feed_result r;
    conr_images *images;
    int rc;
    if ((rc = train_flags(a, &o.train)) || (rc = flag_number(a, "blur", 0, 1, &o.blur)) ||
        (rc = flag_int(a, "device-images", 0, 100000000, &o.device_images)))
        return rc;
    if (conr_images_open(c, operand(a, 1), &all, NULL, NULL, &images) < 0) return library_error();
    rc = conr_bench_feed(c, images, &o, &r);
    conr_images_close(images);
    if (rc < 0) return library_error();
    if (flag_on(a, "json")) return feed_json(&o, &r, conr_device(c));
    print_feed(&o, &r, conr_device(c));
    return finish_output();
}

static int bench_train(conr *c, const arguments *a) {
    conr_bench_train_options o;
    conr_bench_train_result r;
    double flops;
    int rc;
    if ((rc = train_flags(a, &o))) return rc;
    if (conr_bench_train(c, &o, &r) < 0 || conr_bench_peaks(c, &flops, NULL) < 0)
        return library_error();
    flops *= r.ranks; /* of all ranks, like the rate */
    if (flag_on(a, "json")) {
        json_t *parts = json_object();
        for (int i = 0; i < r.n_parts; i++)
            parts = json_put(parts, r.part[i].name, json_real(r.part[i].share));
        return print_json(
            json_pack("{ss ss ss si sb sb sb si si sf sf sf sf sf sf sf so}", "version",
                      conr_version(), "device", conr_device(c), "encoder", o.encoder, "batch",
                      o.batch, "forward", o.forward, "byol", o.byol, "conr", o.conr, "ranks",
                      r.ranks, "steps", r.steps, "collectives", r.collectives, "overlap", r.overlap,
                      "seconds", r.seconds, "images_per_second", r.images / r.seconds, "flops",
                      r.flops, "peak_flops", flops, "bytes", r.bytes, "parts", parts));
    }
    printf("%s; %s, %dx%dx%d, batch %d, %s\n", conr_device(c), o.encoder, o.size, o.size,
           o.channels, o.batch,
           o.conr      ? "one CoNR step with two views"
           : o.byol    ? "one BYOL step with two views"
           : o.forward ? "forward"
                       : "forward + backward");
    double rate = r.flops / r.seconds;
    bool tera = rate > 1e13; /* a GPU */
    printf("step %.2f ms (best of %d), %.1f it/s | %.1f images/s | %.1f %cFLOP/s, %.0f %% of the "
           "%s peak | %.0f MiB\n",
           1e3 * r.seconds, r.steps, 1 / r.seconds, r.images / r.seconds,
           rate * (tera ? 1e-12 : 1e-9), tera ? 'T' : 'G', 100 * rate / flops,
           tera ? "matrix product" : "FMA", r.bytes / (1 << 20));
    if (r.ranks > 1 || r.collectives > 0)
        printf("%d rank%s | %.2f ms per step in collectives, %.1f %% | %.0f %% of the gradient "
               "exchange hidden by the backward pass\n",
               r.ranks, r.ranks > 1 ? "s" : "", 1e3 * r.collectives,
               100 * r.collectives / r.seconds, 100 * r.overlap);
    for (int i = 0; i < r.n_parts; i++)
        printf("  %-30s %5.1f %%\n", r.part[i].name, 100 * r.part[i].share);
    return finish_output();
}

static int run(const arguments *a) {
    const char *what = operand_count(a) ? operand(a, 0) : "ops";
    bool train = !strcmp(what, "train"), feed = !strcmp(what, "feed");
    int threads, rc;
    double seconds;
    if (!train && !feed && strcmp(what, "ops") && strcmp(what, "neighbors") &&
        strcmp(what, "kmeans"))
        return usage_error(
            "bench %s: no such benchmark; give ops, train, neighbors, kmeans or feed", what);
    if (feed != (operand_count(a) == 2))
        return usage_error(feed ? "bench feed: no images given; use conr bench feed SRC"
                                : "bench %s: takes no images; use conr bench feed SRC",
                           what);
    int count;
    conr_rank(&count);
    if (!train && count > 1)
        return failed("bench %s: runs as one process, but %d were started; run it without "
                      "mpirun",
                      what, count);
    if ((rc = flag_int(a, "threads", 0, 1024, &threads))) return rc;
    if ((rc = flag_number(a, "seconds", 0, 3600, &seconds))) return rc;
    conr *c;
    if (conr_open(flag_text(a, "device"), threads, &c) < 0) return library_error();
    rc = train  ? bench_train(c, a)
         : feed ? bench_feed(c, a)
                : bench_rows(c, what, flag_on(a, "only") ? flag_text(a, "only") : NULL, seconds,
                             flag_on(a, "json"));
    conr_close(c);
    return rc;
}

const verb verb_bench = {
    .name = "bench",
    .operands = "[ops|train|neighbors|kmeans|feed SRC]",
    .summary = "Measure the speed of this machine and check its results",
    .text =
        "  ops        every operation of the device, on the shapes that the tests check: time,\n"
        "             rate, share of the measured peak, and error against the reference\n"
        "  train      a training step and where its time goes: forward + backward of an encoder,\n"
        "             or with --byol or --conr a whole step of stage 1 or 2\n"
        "  neighbors  batches, and a set of 60,000 rows of 256 features; takes some minutes\n"
        "  kmeans     the set of 60,000 rows, K = 10 and 200; takes some minutes\n"
        "  feed SRC   a training on these images, beside the step alone, and where the time goes\n"
        "\nExample: conr bench train --device cpu --threads 2 --batch 32\n"
        "         conr bench train --byol --encoder small --width 16 --size 28 --channels 1 \\\n"
        "             --batch 128 --hidden 512 --features 64\n"
        "         conr bench feed photos --encoder resnet34 --stem imagenet --size 96 --batch "
        "256\n",
    .high = 2,
    .flags = flags,
    .run = run,
    .many = true,
};
