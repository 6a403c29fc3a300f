/* conr.h: deep image clustering (CoNR) from C.  The whole public interface of libconr.
 *
 *     #include <conr.h>
 *     #include <stdio.h>
 *
 *     static void row(const conr_bench_row *r, void *user) {
 *         (void)user;
 *         printf("%-16s %-32s %8.3f ms\n", r->op, r->shape, 1e3 * r->seconds);
 *     }
 *     int main(void) {
 *         conr *c;
 *         if (conr_open("auto", 0, &c) < 0 || conr_bench_ops(c, 0.1, row, NULL) < 0)
 *             return fprintf(stderr, "%s\n", conr_error()), 1;
 *         conr_close(c);
 *     }
 *
 * Manners.  What can fail returns 0 or a negative CONR_E* code, and conr_error() then says in one
 * line what was wrong, why, and what to do.  The library prints nothing and never exits; long work
 * reports through callbacks.  A conr context is used by one thread at a time; contexts are
 * independent of each other. */
#ifndef CONR_H
#define CONR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CONR_VERSION "0.1.0"

#if defined(__GNUC__)
#define CONR_API __attribute__((visibility("default")))
#else
#define CONR_API
#endif

/* ---- errors: one list gives the codes and their names ---------------------------------------- */

#define CONR_ERRORS(X)                                                                             \
    X(CONR_EINVAL, -1, "a value is outside what is allowed")                                       \
    X(CONR_ENOMEM, -2, "not enough memory")                                                        \
    X(CONR_EFILE, -3, "a file cannot be read or written")                                          \
    X(CONR_EFORMAT, -4, "a file is not what it claims to be")                                      \
    X(CONR_EDEVICE, -5, "the device is missing or has failed")                                     \
    X(CONR_ENUMBER, -6, "a number is NaN or infinite")                                             \
    X(CONR_ESTOPPED, -7, "stopped on request")

enum {
#define CONR_ERROR_CODE(name, code, text) name = code,
    CONR_ERRORS(CONR_ERROR_CODE)
#undef CONR_ERROR_CODE
};

/* The message of the last failure in this thread: "WHAT: WHY; REMEDY".  Never NULL; the memory
 * belongs to the library and holds until the next failure in the same thread. */
CONR_API const char *conr_error(void);

/* The general meaning of a code, e.g. "not enough memory".  Never NULL. */
CONR_API const char *conr_error_text(int code);

/* The version of the library at hand, e.g. "0.1.0"; CONR_VERSION is that of the header. */
CONR_API const char *conr_version(void);

/* ---- a context: an opened device ------------------------------------------------------------- */

typedef struct conr conr;

/* Opens a device.  device: "auto" (the fastest there is), "ref" (plain loops, the definition of
 * every operation), "cpu".  threads: 0 for all cores.  *out is released by conr_close. */
CONR_API int conr_open(const char *device, int threads, conr **out);
CONR_API void conr_close(conr *c); /* NULL is fine */

/* The opened device in words, e.g. "cpu, 2 threads".  Owned by the context. */
CONR_API const char *conr_device(const conr *c);

/* ---- progress and stopping ------------------------------------------------------------------- */

typedef struct conr_progress {
    const char *stage; /* what is being done, e.g. "k-means" */
    int64_t done, total;
} conr_progress;

/* Called now and then during long work, in the thread that called the library.  Returns 0 to go on;
 * anything else stops the work, which then fails with CONR_ESTOPPED and has written nothing. */
typedef int conr_on_progress(const conr_progress *p, void *user);

/* NULL: no calls. */
CONR_API void conr_set_progress(conr *c, conr_on_progress *on_progress, void *user);

/* ---- measuring ------------------------------------------------------------------------------- */

/* One operation on one shape.  Rates count what the definition needs, so an algorithm that does
 * with fewer operations may show more than the peak. */
typedef struct conr_bench_row {
    const char *op;    /* "conv_forward" */
    const char *shape; /* "32x32x32x64 -> 64, 3x3" */
    double seconds;    /* best of the repetitions */
    double flops;      /* of one run; 0 where memory is what counts */
    double bytes;      /* moved at least, each tensor once */
    double share;      /* of this machine's measured peak: of the FMA rate, or of the copy rate */
    double error;      /* against ref, relative to the size of the signal; -1 on ref itself */
    double bound;      /* error may reach this */
} conr_bench_row;

typedef void conr_on_bench(const conr_bench_row *row, void *user);

/* Times every operation of the device on the list of shapes that the tests check, each for about
 * seconds_per_case, and checks it against ref on the way; calls on_row once per case.  Fails with
 * CONR_ENUMBER after the last row where an error was beyond its bound. */
CONR_API int conr_bench_ops(conr *c, double seconds_per_case, conr_on_bench *on_row, void *user);

/* The peaks that shares refer to, measured at the first call: FMA operations a second (an FMA
 * counts two) and bytes a second of a large copy (read + written; NULL: not wanted, and the copy's
 * memory not taken), with the context's threads. */
CONR_API int conr_bench_peaks(conr *c, double *flops, double *bytes);

/* A training step on made-up images: forward + backward of an encoder, or (byol) all of BYOL's
 * step on two views of `batch` images: online and target passes, loss, backward, update. */
typedef struct conr_bench_train_options {
    const char *encoder;       /* "resnet18", "resnet34", "small" */
    const char *stem;          /* "cifar", "imagenet"; the small encoder has its own */
    int width, size, channels; /* channels of the first stage; pixels a side; 1 or 3 */
    int batch;
    int byol;
    int hidden, features; /* of the heads, with byol */
    int recompute;        /* less memory for a little time */
    double seconds;       /* to repeat for */
} conr_bench_train_options;

/* ResNet-18 with CIFAR stem at 32 pixels, batch 32, forward + backward, 3 seconds */
CONR_API conr_bench_train_options conr_bench_train_defaults(void);

typedef struct conr_bench_train_result {
    double seconds; /* of the best step */
    int steps;
    double images; /* of one step, each counted once */
    double flops;  /* of one step, by the definition */
    double bytes;  /* device memory of weights, gradients and activations */
    struct {
        const char *name;
        double share; /* of a step's time */
    } part[12];
    int n_parts;
} conr_bench_train_result;

CONR_API int conr_bench_train(conr *c, const conr_bench_train_options *o,
                              conr_bench_train_result *out);

#ifdef __cplusplus
}
#endif
#endif
