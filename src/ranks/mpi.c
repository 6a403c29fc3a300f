/* mpi.c: ranks.h over MPI.  A process started without mpirun or srun is the only rank, and MPI is
 * never initialized.  MPI carries what lies in host memory; NCCL carries what lies in GPU memory
 * (gpu.h), and MPI broadcasts the id it starts with. */
#include "ranks/ranks.h"

#include "base/clock.h"
#include "base/status.h"
#include "ranks/gpu.h"

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 28 };   /* elements per call: MPI counts in int */
enum { PIECE = 1 << 20 };   /* floats of a mean at a time: twice as fast if they fit the caches */
enum { MOST_PENDING = 64 }; /* pieces in flight */
enum { MOST_WATCHED = 4096 };

typedef struct pending {
    MPI_Request request;
    float *x;
    int n;
} pending;

/* Behind ranks.own. */
typedef struct group {
    MPI_Comm comm;
    ranks_gpu *gpu; /* made on the first call with GPU memory */
    pending pending[MOST_PENDING];
    int n_pending;
} group;

static group world; /* all ranks of the launch */
static bool started, agreed_to_stop;
static ranks_times spent;

/* On a GPU the host only queues: moments in the queue show how long it was blocked. */
static struct {
    device *dev;
    void *from, *to;
    bool mean;
} watched[MOST_WATCHED];
static int n_watched;
static bool watching;

/* A status for an MPI result.  By default MPI aborts the job on errors, which is what stops a
 * broken run; this is for error handlers that return. */
static int checked(int result, const char *what) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (result == MPI_SUCCESS) return 0;
    MPI_Error_string(result, text, &length);
    return fail(CONR_EDEVICE, "MPI %s: %.*s; see the output of the other ranks", what, length,
                text);
}

static group *group_of(const ranks *r) { return r->own ? r->own : &world; }
static int parts(size_t n) { return n > CHUNK ? CHUNK : (int)n; }

static void timed(double before, double *also) {
    double took = clock_now() - before;
    spent.all += took;
    if (also) *also += took;
}

/* ---- start and end --------------------------------------------------------------------------- */

/* At exit.  If this rank has failed, the others would wait for it: abort them. */
static void end(int status, void *unused) {
    int ended = 0;
    (void)unused;
    MPI_Finalized(&ended);
    if (ended) return;
    if (status && !agreed_to_stop) MPI_Abort(MPI_COMM_WORLD, status);
    MPI_Finalize();
}

static int start(int launched) {
    int rc = 0, there = 0, level = 0, count = 0;
    TRY(checked(MPI_Initialized(&there), "start"));
    /* the loader has threads; only one thread calls MPI */
    if (!there) TRY(checked(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level), "start"));
    if (!there) on_exit(end, NULL); /* whoever initialized MPI finalizes it */
    TRY(checked(MPI_Comm_size(MPI_COMM_WORLD, &count), "start"));
    if (count != launched)
        TRY(fail(CONR_EINVAL,
                 "%d processes were started, but MPI sees %d; use the mpirun of the MPI that conr "
                 "was built with (srun: --mpi=pmix), or set CONR_ALONE=1 to run each on its own",
                 launched, count));
    world.comm = MPI_COMM_WORLD;
    started = true;
done:
    return rc;
}

/* Fills in rank and count, of all ranks and of those on this machine. */
static int identify(ranks *r) {
    int rc = 0;
    MPI_Comm machine;
    MPI_Comm comm = group_of(r)->comm;
    TRY(checked(MPI_Comm_rank(comm, &r->rank), "start"));
    TRY(checked(MPI_Comm_size(comm, &r->count), "start"));
    r->talks = r->count > 1 || ranks_one_talks();
    TRY(checked(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine),
                "start"));
    TRY(checked(MPI_Comm_rank(machine, &r->local), "start"));
    TRY(checked(MPI_Comm_size(machine, &r->locals), "start"));
    TRY(checked(MPI_Comm_free(&machine), "start"));
done:
    return rc;
}

int ranks_open(ranks *r) {
    static ranks known;
    int rc = 0, launched = ranks_launched();
    *r = (ranks){.count = 1, .locals = 1};
    if (launched == 1 && !ranks_one_talks()) return 0;
    if (!started) {
        TRY(start(launched));
        TRY(identify(&known));
    }
    *r = known;
done:
    return rc;
}

int ranks_part(const ranks *r, int size, ranks *out) {
    int rc = 0;
    group *g = NULL;
    ASSERT(size > 0 && r->count % size == 0);
    *out = size == r->count ? *r : (ranks){.count = 1, .locals = 1};
    if (size == 1 || size == r->count) return 0;
    g = calloc(1, sizeof *g);
    if (!g) return fail_memory("ranks", sizeof *g);
    out->own = g;
    TRY(checked(MPI_Comm_split(group_of(r)->comm, r->rank / size, r->rank, &g->comm), "split"));
    TRY(identify(out));
done:
    if (rc < 0) free(g), out->own = NULL;
    return rc;
}

void ranks_close(ranks *r) {
    group *g = r->own;
    if (!g) return;
    ranks_gpu_free(g->gpu);
    MPI_Comm_free(&g->comm);
    free(g);
    *r = (ranks){.count = 1, .locals = 1};
}

/* ---- device memory --------------------------------------------------------------------------- */

/* What is queued between the two is watched, if watching is on. */
static int watch_begin(device *dev, bool mean) {
    if (!watching || n_watched == MOST_WATCHED) return 0;
    watched[n_watched].dev = dev, watched[n_watched].mean = mean;
    return dev->op.moment(dev, &watched[n_watched].from);
}

static int watch_end(device *dev) {
    if (!watching || n_watched == MOST_WATCHED) return 0;
    return dev->op.moment(dev, &watched[n_watched++].to);
}

/* Exit handlers run in reverse order: registered after the CUDA driver started, this one runs
 * before the driver ends.  After a failure NCCL may wait for the others forever; `end` aborts
 * them. */
static void end_gpu(int status, void *unused) {
    (void)unused;
    if (status && !agreed_to_stop) return;
    ranks_gpu_free(world.gpu);
    world.gpu = NULL;
}

/* The NCCL communicator of a group. */
static int gpu_of(ranks *r, device *dev, ranks_gpu **out) {
    int rc = 0;
    group *g = group_of(r);
    unsigned char id[RANKS_GPU_ID] = {0};
    if (!g->gpu) {
        if (r->rank == 0) TRY(ranks_gpu_id(id));
        TRY(checked(MPI_Bcast(id, sizeof id, MPI_BYTE, 0, g->comm), "broadcast"));
        TRY(ranks_gpu_new(dev, id, r->rank, r->count, &g->gpu));
        if (g == &world) on_exit(end_gpu, NULL);
    }
    *out = g->gpu;
done:
    return rc;
}

static void scale(float *x, size_t n, int count) {
    float part = 1 / (float)count; /* exact if the number of ranks is a power of two */
    for (size_t i = 0; i < n; i++) x[i] *= part;
}

int ranks_sum(ranks *r, device *dev, float *x, size_t n) {
    int rc = 0;
    ranks_gpu *g;
    if (!r->talks) return 0;
    if (dev->is_gpu) {
        TRY(gpu_of(r, dev, &g));
        TRY(watch_begin(dev, false));
        TRY(ranks_gpu_sum(g, dev, x, n, false));
        return watch_end(dev);
    }
    TRY(dev->op.sync(dev));
    double before = clock_now();
    for (size_t at = 0; at < n; at += CHUNK)
        TRY(checked(MPI_Allreduce(MPI_IN_PLACE, x + at, parts(n - at), MPI_FLOAT, MPI_SUM,
                                  group_of(r)->comm),
                    "sum"));
    timed(before, NULL);
done:
    return rc;
}

int ranks_mean(ranks *r, device *dev, float *x, size_t n) {
    int rc = ranks_mean_begin(r, dev, x, n);
    return rc < 0 ? rc : ranks_mean_end(r, dev);
}

/* MPI makes progress while a rank is inside its calls, and the sums of batch statistics in the
 * backward pass are such calls; network cards that progress on their own need none. */
int ranks_mean_begin(ranks *r, device *dev, float *x, size_t n) {
    int rc = 0;
    ranks_gpu *gpu;
    group *g = group_of(r);
    if (!r->talks || n == 0) return 0;
    if (dev->is_gpu)
        return (rc = gpu_of(r, dev, &gpu)) < 0 ? rc : ranks_gpu_mean_begin(gpu, dev, x, n);
    TRY(dev->op.sync(dev));
    double before = clock_now();
    for (size_t at = 0; at < n; at += PIECE) {
        if (g->n_pending == MOST_PENDING) TRY(ranks_mean_end(r, dev));
        pending *p = &g->pending[g->n_pending++];
        *p = (pending){.x = x + at, .n = n - at < PIECE ? (int)(n - at) : PIECE};
        TRY(checked(
            MPI_Iallreduce(MPI_IN_PLACE, p->x, p->n, MPI_FLOAT, MPI_SUM, g->comm, &p->request),
            "mean"));
    }
    timed(before, &spent.mean);
done:
    return rc;
}

int ranks_mean_end(ranks *r, device *dev) {
    int rc = 0;
    ranks_gpu *gpu;
    group *g = group_of(r);
    if (!r->talks) return 0;
    if (dev->is_gpu) {
        TRY(gpu_of(r, dev, &gpu));
        TRY(watch_begin(dev, true));
        TRY(ranks_gpu_mean_end(gpu, dev));
        return watch_end(dev);
    }
    double before = clock_now();
    for (int i = 0; i < g->n_pending; i++) {
        pending *p = &g->pending[i];
        TRY(checked(MPI_Wait(&p->request, MPI_STATUS_IGNORE), "mean"));
        scale(p->x, (size_t)p->n, r->count);
    }
    g->n_pending = 0;
    timed(before, &spent.mean);
done:
    return rc;
}

int ranks_gather(ranks *r, device *dev, const void *mine, size_t bytes, void *all) {
    int rc = 0;
    ranks_gpu *g;
    if (!r->talks) return all == mine ? 0 : dev->op.copy(dev, all, mine, bytes);
    if (dev->is_gpu) {
        TRY(gpu_of(r, dev, &g));
        TRY(watch_begin(dev, false));
        TRY(ranks_gpu_gather(g, dev, mine, bytes, all));
        return watch_end(dev);
    }
    TRY(dev->op.sync(dev));
    TRY(ranks_all_gather(r, mine, bytes, all));
done:
    return rc;
}

int ranks_gather_back(ranks *r, device *dev, const float *d_all, size_t n, float *d_mine) {
    int rc = 0;
    const float *part = d_all + (size_t)r->rank * n;
    if (!r->talks)
        return d_mine == d_all ? 0 : dev->op.copy(dev, d_mine, d_all, n * sizeof *d_mine);
    if (dev->is_gpu) return ranks_gpu_scale(dev, part, n, (float)r->count, d_mine);
    TRY(dev->op.sync(dev));
    for (size_t i = 0; i < n; i++) d_mine[i] = (float)r->count * part[i];
done:
    return rc;
}

/* ---- host memory ----------------------------------------------------------------------------- */

int ranks_broadcast(ranks *r, void *x, size_t bytes) {
    return ranks_broadcast_from(r, 0, x, bytes);
}

int ranks_broadcast_from(ranks *r, int who, void *x, size_t bytes) {
    int rc = 0;
    if (!r->talks) return 0;
    double before = clock_now();
    for (size_t at = 0; at < bytes; at += CHUNK)
        TRY(checked(MPI_Bcast((char *)x + at, parts(bytes - at), MPI_BYTE, who, group_of(r)->comm),
                    "broadcast"));
    timed(before, NULL);
done:
    return rc;
}

int ranks_all_gather(ranks *r, const void *mine, size_t bytes, void *all) {
    int rc = 0;
    ASSERT(bytes <= INT_MAX);
    if (!r->talks) {
        if (all != mine) memcpy(all, mine, bytes);
        return 0;
    }
    double before = clock_now();
    TRY(checked(
        MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, group_of(r)->comm),
        "gather"));
    timed(before, NULL);
done:
    return rc;
}

int ranks_sum_ints(ranks *r, int64_t *x, size_t n) {
    int rc = 0;
    if (!r->talks) return 0;
    double before = clock_now();
    for (size_t at = 0; at < n; at += CHUNK)
        TRY(checked(MPI_Allreduce(MPI_IN_PLACE, x + at, parts(n - at), MPI_INT64_T, MPI_SUM,
                                  group_of(r)->comm),
                    "sum"));
    timed(before, NULL);
done:
    return rc;
}

int ranks_any(ranks *r, bool yes, bool *any) {
    int rc = 0, sum = yes;
    *any = yes;
    if (!r->talks) return 0;
    double before = clock_now();
    TRY(checked(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_MAX, group_of(r)->comm), "any"));
    timed(before, NULL);
    *any = sum;
    if (sum) agreed_to_stop = true;
done:
    return rc;
}

ranks_times ranks_time(void) {
    for (int i = 0; i < n_watched; i++) {
        double took = 0;
        device *dev = watched[i].dev;
        if (dev->op.seconds(dev, watched[i].from, watched[i].to, &took) < 0) continue;
        spent.all += took;
        if (watched[i].mean) spent.mean += took;
    }
    n_watched = 0;
    return spent;
}

void ranks_watch(bool on) { watching = on; }
