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
 *         if (conr_open("auto", 0, &c) < 0 || conr_bench_ops(c, NULL, 0.1, row, NULL) < 0)
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
 * every operation), "cpu", "cuda" or "cuda:1" (an NVIDIA GPU, activations in bf16; "cuda-f32": in
 * fp32, slow).  threads: 0 for all cores.  *out is released by conr_close. */
CONR_API int conr_open(const char *device, int threads, conr **out);
CONR_API void conr_close(conr *c); /* NULL is fine */

/* Which process this is of those that mpirun or srun has started for one training (conr_train,
 * conr_bench_train), and in *count (NULL is fine) how many there are; 0 of 1 where it was started
 * alone.  All make the same calls; 0 alone writes files, and should be the one to speak.  A process
 * that exits with another code than 0 brings the others down. */
CONR_API int conr_rank(int *count);

/* With 1, conr_neighbors and conr_kmeans are from now on called by all of these processes at once,
 * with the same arrays and options, and share the work; all get the same result, which is that of
 * one alone.  With 0, as at first, each works for itself; reports are one process's. */
CONR_API void conr_set_together(conr *c, int yes);

/* The opened device in words, e.g. "cpu, 2 threads".  Owned by the context. */
CONR_API const char *conr_device(const conr *c);

/* On a GPU: the stream (cudaStream_t) on which the context's work is queued from now on, behind all
 * that it has queued before, which is waited for on the GPU, not here.  NULL: the context's own, as
 * after conr_open; cudaStreamLegacy, (cudaStream_t)1, for CUDA's default stream.  The stream must
 * live until another is set or the context is closed.  Makes the context's GPU the calling thread's
 * current one.  CONR_EINVAL on a device that has no streams. */
CONR_API int conr_set_stream(conr *c, void *stream);

/* ---- progress and stopping ------------------------------------------------------------------- */

typedef struct conr_progress {
    const char *stage; /* what is being done, e.g. "k-means" */
    int64_t done, total;
    const char *message; /* something to tell at once, such as a warning; NULL: nothing */
    /* of a training's steps, else 0 */
    int epoch, epochs; /* from 1 */
    double loss, lr;   /* mean since the last report; of the encoder */
    double images_per_s, seconds_left;
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
 * seconds_per_case, and checks it against ref on the way; calls on_row once per case.  only: of
 * "conv_forward 32x32x32x64 -> 64, 3x3" and the like those that contain this, or NULL.  Fails with
 * CONR_ENUMBER after the last row where an error was beyond its bound. */
CONR_API int conr_bench_ops(conr *c, const char *only, double seconds_per_case,
                            conr_on_bench *on_row, void *user);

/* The peaks that shares refer to, measured at the first call: FMA operations a second (an FMA
 * counts two; on a GPU those of a large matrix product) and bytes a second of a large copy (read +
 * written; NULL: not wanted, and the copy's memory not taken), with the context's threads. */
CONR_API int conr_bench_peaks(conr *c, double *flops, double *bytes);

/* A training step on made-up images: forward + backward of an encoder, or all of a step of BYOL or
 * CoNR on `batch` images: views, online and target passes, (CoNR: neighborhoods and filter), loss,
 * backward, update. */
typedef struct conr_bench_train_options {
    const char *encoder;       /* "resnet18", "resnet34", "small" */
    const char *stem;          /* "cifar", "imagenet"; the small encoder has its own */
    int width, size, channels; /* channels of the first stage; pixels a side; 1 or 3 */
    int batch;
    int byol, conr;       /* a whole step of stage 1, or of stage 2 */
    int hidden, features; /* of the heads, with either */
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
    /* of the processes of one training (conr_rank): */
    int ranks;
    double collectives; /* seconds a step that wait for collectives */
    double overlap;     /* share of the gradients' way that the backward pass hides */
} conr_bench_train_result;

CONR_API int conr_bench_train(conr *c, const conr_bench_train_options *o,
                              conr_bench_train_result *out);

/* ---- features: neighborhoods, k-means, scores ------------------------------------------------ */

/* What follows works on anyone's features: host arrays, row-major, owned by the caller.  n rows of
 * d numbers each, every one finite, else CONR_ENUMBER names the row.
 *
 * On a GPU conr_neighbors, conr_kmeans, conr_assign, conr_boundary and conr_boundary_filter also
 * take arrays in that GPU's memory, be they of cudaMalloc or of another library: all of a call's
 * arrays, or none (CONR_EINVAL).  They are then read and written where they lie, in the order of
 * the context's stream (conr_set_stream), and stay the caller's until that has passed the call.
 *     - conr_neighbors up to 8192 rows, conr_assign, conr_boundary and conr_boundary_filter wait
 *       for nothing: they return when their work is queued.  So numbers are not checked there: NaN
 *       or infinity gives neighbors and labels that mean nothing, all of them in their range.
 *     - Working memory stays with the context and grows with the largest call (neighbors: three
 *       matrices [n,n]).  A call like one before takes none, so neighbors, boundary and filter can
 *       be captured in a CUDA graph once such a first call is done.  Graphs captured with one
 *       context share memory: replay them one after the other. */

typedef struct conr_neighbors_options {
    int k;            /* neighbors wanted, the row itself included; k, k1, k2 are cut to n */
    int k1;           /* neighbors that make the graph */
    int k2;           /* neighbors that pass messages, the row itself included */
    int layers;       /* of message passing */
    double alpha;     /* similarities pass with this power */
    int resymmetrize; /* before every layer but the first: A <- A + A^T */
    int local;        /* 1: plain nearest neighbors by cosine instead */
} conr_neighbors_options;

/* k = k1 = 10, k2 = 2, 2 layers, alpha 2, resymmetrized, not local */
CONR_API conr_neighbors_options conr_neighbors_defaults(void);

/* Contextually affinitive neighbors (or local ones) of every row among all rows, best first, the
 * row itself always first.  ids: [n, min(k,n)].  Exact; memory grows with n.  Of arrays on a GPU
 * more than 8192 rows are searched there, and the rest is done on the host: the call waits, and
 * finds out numbers that are not finite: CONR_ENUMBER. */
CONR_API int conr_neighbors(conr *c, const float *features, int64_t n, int64_t d,
                            const conr_neighbors_options *o, int32_t *ids);

/* purity[K-1] = the mean share of a row's own class among its first K neighbors other than itself,
 * K = 1 .. k-1.  ids: [n,k] as above; labels: [n], -1 unlabeled and left out; kept: [n], rows with
 * 0 are left out as anchors, NULL: none; purity: [k-1], NaN where no row was left. */
CONR_API int conr_purity(const int32_t *ids, int64_t n, int k, const int64_t *labels,
                         const unsigned char *kept, double *purity);

/* How far apart two rows are: 1 - cos of the angle between them, or the Euclidean distance. */
typedef enum conr_metric { CONR_COSINE, CONR_EUCLIDEAN } conr_metric;

typedef struct conr_kmeans_options {
    int clusters;       /* K, at most n */
    conr_metric metric; /* cosine: rows are first scaled to length 1 */
    int restarts;       /* the best of so many runs from greedy k-means++ */
    int iterations;     /* of one run, at most */
    double tolerance; /* a run ends when the squared shifts of the centroids add up to this much of
                         the features' mean variance; or when no label changes */
    uint64_t seed;
    const float *start; /* [K,d] centroids of one more run, or NULL; host, also where the features
                           are on a GPU, or with them */
} conr_kmeans_options;

/* cosine, 10 restarts of at most 300 iterations, tolerance 1e-4, seed 1 */
CONR_API conr_kmeans_options conr_kmeans_defaults(void);

typedef struct conr_kmeans_step {
    int run;          /* 0 .. restarts-1; restarts: the one from `start`; more: from the best */
    int iteration;    /* of the run, from 1 */
    double objective; /* sum of squared distances, or of 1 - cos, of rows to the mean of their
                         cluster */
    double
        imbalance; /* K * sum of squared shares: 1 when all clusters have equal size, at most K */
    int64_t moved; /* rows that changed their cluster */
    int refilled;  /* clusters that had lost all rows and were given one */
} conr_kmeans_step;

typedef struct conr_kmeans_history {
    double objective;       /* of the result: rows to the centroids returned */
    int run;                /* that gave it */
    conr_kmeans_step *step; /* [steps], run by run; freed by conr_kmeans_history_free */
    int steps;
} conr_kmeans_history;

/* centroids: [K,d], plain means (of the unit rows: not scaled to length 1).  labels: [n], the
 * nearest centroid, so that conr_assign with these centroids gives them again.  history may be
 * NULL.  The same seed gives the same bits for any number of threads.  Waits also on a GPU, where
 * features that are not finite are found out by what comes of them: CONR_ENUMBER. */
CONR_API int conr_kmeans(conr *c, const float *features, int64_t n, int64_t d,
                         const conr_kmeans_options *o, float *centroids, int32_t *labels,
                         conr_kmeans_history *history);
CONR_API void conr_kmeans_history_free(conr_kmeans_history *h);

/* The nearest centroid of each row; the lower of equals.  centroids: [K,d]; labels: [n];
 * distances: [n] by the metric, or NULL. */
CONR_API int conr_assign(conr *c, const float *features, int64_t n, int64_t d, conr_metric metric,
                         const float *centroids, int K, int32_t *labels, float *distances);

/* Estimates the number of clusters, low <= K <= high (docs/choosing-k.md).  o->clusters is not
 * read. score: [high-low+1] or NULL: the criterion of each K, larger is better, -INFINITY where
 * it was not looked at. */
CONR_API int conr_choose_clusters(conr *c, const float *features, int64_t n, int64_t d,
                                  const conr_kmeans_options *o, int low, int high, int *chosen,
                                  double *score);

/* The boundary ratio r = 1 - (d_N - d_I)/max(d_I, d_N) in [0,2]: 0 on the own centroid, 1 half way
 * to the nearest other.  d_I = |f - own centroid|, d_N = |f - nearest other|; rows are scaled to
 * length 1 first where the metric is cosine, centroids where normalize_centroids is set.  labels:
 * [n], in 0 .. K-1; ratio: [n].  With K = 1 there is no other: 0.  Arrays on a GPU: labels are not
 * checked; one that is not in 0 .. K-1 gives NaN. */
CONR_API int conr_boundary(conr *c, const float *features, int64_t n, int64_t d, conr_metric metric,
                           const float *centroids, int K, const int32_t *labels,
                           int normalize_centroids, float *ratio);

/* sigma = the largest of the floor(n * fraction) smallest ratios, at least one; kept[i] = ratio[i]
 * <= sigma.  sigma may be NULL.  Returns how many are kept, or a CONR_E* code. */
CONR_API int64_t conr_boundary_keep(const float *ratio, int64_t n, double fraction,
                                    unsigned char *kept, float *sigma);

/* conr_boundary_keep for arrays in the host's or the context's GPU's memory: kept alone, so that
 * nothing waits for a number.  Returns 0 or a CONR_E* code. */
CONR_API int conr_boundary_filter(conr *c, const float *ratio, int64_t n, double fraction,
                                  unsigned char *kept);

/* The fraction that is kept: grows linearly from `first` to 1 when `epoch` has reached
 * `relax_epochs`.  Released code: epoch counts from 1 in stage 2, relax_epochs 50; paper: from 0,
 * and relax_epochs is the length of stage 2. */
CONR_API double conr_boundary_fraction(double first, int epoch, int relax_epochs);

/* Scores of a clustering against true classes.  Labels are any integers; a sample whose true label
 * is -1 is unlabeled, left out and counted. */
typedef struct conr_scores {
    double nmi;          /* mutual information over the arithmetic mean of the entropies */
    double acc;          /* share on the best one-to-one match of clusters and classes */
    double ari;          /* adjusted Rand index */
    double balanced_acc; /* mean over the classes of their share on that match */
    int64_t n;           /* samples that count */
    int64_t unlabeled;
    int clusters, classes; /* that occur */
} conr_scores;

CONR_API int conr_metrics(const int64_t *truth, const int64_t *pred, int64_t n, conr_scores *out);

/* How clusters and classes meet; both in ascending order of their labels. */
typedef struct conr_confusion {
    int clusters, classes;
    int64_t *cluster, *class_; /* [clusters], [classes]: the labels */
    int64_t *count;            /* [clusters, classes] */
    int *match;                /* [clusters]: the class (its position) that ACC gives it, or -1 */
    double *purity;            /* [clusters]: share of its largest class */
    int64_t n, unlabeled;
} conr_confusion;

CONR_API int conr_confusion_make(const int64_t *truth, const int64_t *pred, int64_t n,
                                 conr_confusion *out);
CONR_API void conr_confusion_free(conr_confusion *m); /* also when it was never made, if zeroed */

/* The mean silhouette of the rows in [-1,1], labels: [n], any integers, at least two different.
 * Exact below 20,000 rows; above, the mean over a sample of rows (against all others), whose size
 * is *used.  used may be NULL. */
CONR_API int conr_silhouette(conr *c, const float *features, int64_t n, int64_t d,
                             conr_metric metric, const int32_t *labels, uint64_t seed, double *mean,
                             int64_t *used);

/* Weighted k-nearest-neighbor accuracy by cosine: neighbor j votes for its class with
 * exp(cos / temperature); usual are k = 20, temperature = 0.07.  query NULL: each row against all
 * the others.  Unlabeled rows (-1) neither vote nor count; ties go to the lower label. */
CONR_API int conr_knn_accuracy(conr *c, const float *features, const int64_t *labels, int64_t n,
                               const float *query, const int64_t *query_labels, int64_t n_query,
                               int64_t d, int k, double temperature, double *accuracy);

/* Times neighborhoods (batches of 256 and 1024, the whole set of 60,000; d = 256), or k-means
 * (60,000 rows, d = 256, K = 10 and 200, 10 restarts) and the matching under ACC (200 x 200), on
 * features drawn from 30 clusters.  quick: the small ones alone.  share is of the FMA peak,
 * counting one half of F F^T for neighborhoods; 0 for k-means, whose operations depend on the data.
 */
CONR_API int conr_bench_neighbors(conr *c, int quick, conr_on_bench *on_row, void *user);
CONR_API int conr_bench_kmeans(conr *c, int quick, conr_on_bench *on_row, void *user);

/* ---- arrays in files ------------------------------------------------------------------------- */

/* A matrix of numbers from a .npy file of any type and order, refused where it has NaN or infinity.
 * *features is released by conr_free. */
CONR_API int conr_read_features(const char *path, float **features, int64_t *n, int64_t *d);

/* Integers from a .npy file or a CSV: its column named `column` if not NULL, else the first of
 * cluster, label, pred that it has, else its last.  *labels is released by conr_free. */
CONR_API int conr_read_labels(const char *path, const char *column, int64_t **labels, int64_t *n);

/* .npy files, complete or not there at all.  columns 0: a vector [rows]. */
CONR_API int conr_write_ints(const char *path, const int32_t *values, int64_t rows,
                             int64_t columns);
CONR_API int conr_write_floats(const char *path, const float *values, int64_t rows,
                               int64_t columns);
CONR_API void conr_free(void *p);

/* ---- images ---------------------------------------------------------------------------------- */

/* What a SRC is (docs/images.md): folders of JPEG, PNG and WebP files, data sets' binary files,
 * IDX, .npy, lists of paths.  Opening looks at every header, not at pixels. */
typedef struct conr_images conr_images;

typedef struct conr_images_options {
    const char *split;   /* "train", "val", "test", "unlabeled": only this part; NULL: all joined */
    const char *classes; /* "cat,dog": only these class folders; NULL: all */
    int coarse;          /* 1: CIFAR-100's 20 superclasses as labels */
    double long_tail;    /* f > 1: classes thinned out, the last to 1/f of the first, in geometric
                            steps; needs labels */
} conr_images_options;

/* all parts, all classes, fine labels */
CONR_API conr_images_options conr_images_defaults(void);

/* How far long work is; from any thread, one at a time.  Nonzero stops it with CONR_ESTOPPED. */
typedef int conr_on_count(int64_t done, int64_t total, void *user);

/* Files that cannot be read are skipped and counted; more than 5 % of them are an error, and so is
 * a source without images.  on_count may be NULL.  *out is released by conr_images_close. */
CONR_API int conr_images_open(conr *c, const char *src, const conr_images_options *o,
                              conr_on_count *on_count, void *user, conr_images **out);
CONR_API void conr_images_close(conr_images *m); /* NULL is fine */

/* Texts belong to m.  File names and class names may hold any bytes but 0. */
typedef struct conr_images_info {
    const char *kind;          /* "image folder", "CIFAR-10 binary files", ... */
    int64_t n;                 /* images */
    int64_t labeled;           /* of them with a label */
    int64_t skipped;           /* files that cannot be read */
    const char *first_skipped; /* why, for the first of them; NULL: none */
    int width[2], height[2];   /* least and greatest, pixels */
    int channels;              /* 1 where every image is gray, else 3 */
    int classes;               /* 0: no labels */
} conr_images_info;

CONR_API void conr_images_about(const conr_images *m, conr_images_info *out);

/* A class's name and how many images it has; class < classes.  count may be NULL. */
CONR_API const char *conr_images_class(const conr_images *m, int which, int64_t *count);

/* Image i < n: its label (-1: unknown), and its path, or "name#index" in an array, which holds
 * until the next call. */
CONR_API int conr_images_label(const conr_images *m, int64_t i);
CONR_API const char *conr_images_path(conr_images *m, int64_t i);

/* All pixels as features: images squashed to size x size, one row each, values in [0,1], row by row
 * and channel by channel: what a clustering of plain pixels starts from.  Images whose pixels turn
 * out unreadable are dropped from m and counted there, so ask conr_images_about again.
 * *features [n,d] is released by conr_free. */
CONR_API int conr_images_pixels(conr *c, conr_images *m, int size, float **features, int64_t *n,
                                int64_t *d);

/* ---- training -------------------------------------------------------------------------------- */

/* The settings of a training: what a recipe file says (docs/recipes.md).  A key is a word of the
 * list that conr_setting gives; every key has a default, which is the paper's. */
typedef struct conr_settings conr_settings;

CONR_API int conr_settings_new(conr_settings **out);
CONR_API void conr_settings_free(conr_settings *s); /* NULL is fine */
/* A recipe: YAML, flat, keys and values.  What it does not name stays as it is. */
CONR_API int conr_settings_read(conr_settings *s, const char *path);
CONR_API int conr_settings_set(conr_settings *s, const char *key, const char *value);
/* The value as text that conr_settings_set would take; out: size bytes. */
CONR_API int conr_settings_get(const conr_settings *s, const char *key, char *out, int size);

/* Settings that contradict each other fail here, as they would in conr_train. */
CONR_API int conr_settings_check(const conr_settings *s);

/* Told once for each setting that was looked at; why: NULL where the caller had fixed it. */
typedef void conr_on_choice(const char *key, const char *value, const char *why, void *user);

/* Settings that fit the images and the device, by plain rules: what `conr cluster` trains with.
 * Keys that `fixed` names (with blanks between; NULL: none) stay as they are in s, clusters always
 * does, and what depends on them follows.  budget: as in conr_train_options.  on_choice: NULL is
 * fine. */
CONR_API int conr_settings_choose(const conr *c, const conr_images *m, double budget,
                                  const char *fixed, conr_settings *s, conr_on_choice *on_choice,
                                  void *user);

/* Setting i = 0, 1, ... of the list.  Returns 0 beyond the last. */
typedef struct conr_setting_info {
    const char *key, *initial;
    const char *allowed; /* "1 to 4096", "byol|simsiam|moco", ... */
    const char *help;
} conr_setting_info;
CONR_API int conr_setting(int i, conr_setting_info *out);

typedef struct conr_train_options {
    const char *out;  /* the run's folder; made where it is not there */
    int resume;       /* go on where the run in `out` was stopped, with its own settings */
    const char *from; /* "RUN" or "RUN@EPOCH": start from that checkpoint; NULL: from nothing.
                         Also a folder of a compact checkpoint. */
    int stage;        /* 2: with `from`, stage 2 begins at once, and the epochs before it count as
                         done; 0: where the checkpoint stands */
    const char *init; /* safetensors with an encoder's first weights, as torchvision's; NULL */
    double budget; /* seconds: epochs (and stage1_epochs, warmup_epochs in proportion) are chosen so
                      that the training takes about this long; 0: as set */
    int no_report; /* 1: RUN/report.html is not made; conr_report can do so later */
} conr_train_options;

CONR_API conr_train_options conr_train_defaults(void); /* nothing set */

typedef struct conr_train_result {
    int clusters, epochs;
    int64_t steps, images;
    double seconds;      /* of this call */
    double loss;         /* mean of the last epoch */
    double images_per_s; /* of the training steps, each image counted once */
    int labeled;         /* 1: scores and knn mean something */
    conr_scores scores;
    double knn;        /* 20-nearest-neighbor accuracy */
    double silhouette; /* of the final clusters; NaN where there is but one */
} conr_train_result;

/* Trains on the images, clusters them and writes the run's folder: options.yaml, log.jsonl,
 * checkpoint.safetensors, model.safetensors, embeddings.npy, centroids.npy, labels.csv, data.json
 * (what the images are, and where), report.html, and DONE last.  Stopping by progress saves a
 * checkpoint and gives CONR_ESTOPPED.  Images that turn out unreadable are dropped from m and
 * counted there.  result may be NULL. */
CONR_API int conr_train(conr *c, conr_images *m, const conr_settings *s,
                        const conr_train_options *o, conr_train_result *result);

/* ---- a trained model ------------------------------------------------------------------------- */

typedef struct conr_model conr_model;

typedef struct conr_model_info {
    const char *encoder, *framework; /* "resnet18"; "byol" */
    int size, channels;              /* of the images that it takes */
    int features;                    /* d */
    int clusters;                    /* K; 0: no centroids beside the model */
    const float *centroids;          /* [K,d], or NULL */
} conr_model_info;

/* A run's folder, or a model.safetensors alone.  *out is released by conr_model_close. */
CONR_API int conr_model_open(conr *c, const char *path, conr_model **out);
CONR_API void conr_model_close(conr_model *m); /* NULL is fine */
CONR_API void conr_model_about(const conr_model *m, conr_model_info *out);

/* Features of all images, unit rows.  Images that turn out unreadable are dropped and counted.
 * *features [n,d] is released by conr_free. */
CONR_API int conr_embed(conr *c, const conr_model *m, conr_images *images, float **features,
                        int64_t *n, int64_t *d);

/* Writes the encoder for use elsewhere (docs/export.md).  format:
 *   "safetensors"  weights under torchvision's own names; projector != 0: the projector, too, as
 *                  projector.0.weight ...
 *   "onnx"         a graph from `images` [N,c,size,size], values in [0,1], to `features` [N,d], the
 *                  unit rows of conr_embed, and `encoder`, the encoder's output before the
 *                  projector; projector is not read. */
CONR_API int conr_export(const conr_model *m, const char *format, int projector, const char *path);

/* Cluster, distance (1 - cos to its centroid) and boundary ratio of images in a CSV file:
 * path,cluster,distance,boundary[,label].  The features are those of conr_embed for the same
 * images. */
CONR_API int conr_write_clusters(const char *path, conr_images *images, const int32_t *labels,
                                 const float *distances, const float *boundary, int64_t n);

/* Puts images into folder/cluster-00, ...: symbolic links to their files, copies with copy != 0;
 * images of arrays become PNG files.  Of equal names the later get their number.  labels: [n], in
 * 0 .. clusters-1.  The folder must be empty or not there, which conr_sort_check tells beforehand;
 * after a failure it is as before. */
CONR_API int conr_sort_images(conr *c, conr_images *images, const int32_t *labels, int64_t n,
                              int clusters, const char *folder, int copy);
CONR_API int conr_sort_check(const char *folder);

/* ---- reports --------------------------------------------------------------------------------- */

typedef struct conr_report_options {
    const char *data; /* the run's images; NULL: where they were at its training */
    const char *out;  /* the file; NULL: RUN/report.html */
} conr_report_options;

CONR_API conr_report_options conr_report_defaults(void); /* nothing set */

typedef struct conr_report_result {
    int64_t images, points; /* of the run; on the map, which is a sample beyond 20,000 */
    int clusters;
    int pictures; /* 0: the images were not to be had, and the report says so */
    int64_t bytes;
} conr_report_result;

/* One HTML file that needs nothing else: what was done, every cluster, a map of the images, their
 * neighbors, curves.  The run is finished.  result may be NULL. */
CONR_API int conr_report(conr *c, const char *run, const conr_report_options *o,
                         conr_report_result *result);

/* Several runs, or sweeps' folders, in one file: a table of mean and deviation over seeds, scores
 * over the settings that differ, overlaid curves. */
CONR_API int conr_report_compare(conr *c, const char *const *runs, int n, const char *out);

#ifdef __cplusplus
}
#endif
#endif
