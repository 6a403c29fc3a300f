/* ranks_mpi.c: ranks.h over MPI, for devices whose memory is the host's.  Launch is mpirun's or
 * srun's; started alone, a process is one rank of one. */
#include "device/ranks.h"

#include "base/status.h"

#include <limits.h>
#include <mpi.h>

enum { CHUNK = 1 << 28 }; /* floats a call: MPI counts in int */

/* A status for an MPI result.  MPI's default is to abort the job on errors, which is what brings a
 * broken run down; this is for error handlers that return. */
static int checked(int result, const char *what) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (result == MPI_SUCCESS) return 0;
    MPI_Error_string(result, text, &length);
    return fail(CONR_EDEVICE, "MPI %s: %.*s; look at the other ranks' output", what, length, text);
}

static int parts(size_t n) { return n > CHUNK ? CHUNK : (int)n; }

int ranks_open(ranks *r) {
    int there = 0, rc = 0;
    *r = (ranks){.count = 1};
    TRY(checked(MPI_Initialized(&there), "start"));
    if (!there) TRY(checked(MPI_Init(NULL, NULL), "start"));
    TRY(checked(MPI_Comm_rank(MPI_COMM_WORLD, &r->rank), "start"));
    TRY(checked(MPI_Comm_size(MPI_COMM_WORLD, &r->count), "start"));
    r->own = there ? NULL : r; /* who started MPI ends it */
done:
    return rc;
}

void ranks_close(ranks *r) {
    int ended = 0;
    MPI_Finalized(&ended);
    if (r->own && !ended) MPI_Finalize();
    r->own = NULL;
}

int ranks_sum(ranks *r, device *dev, float *x, size_t n) {
    int rc = 0;
    if (r->count == 1) return 0;
    TRY(dev->op.sync(dev));
    for (size_t at = 0; at < n; at += CHUNK)
        TRY(checked(
            MPI_Allreduce(MPI_IN_PLACE, x + at, parts(n - at), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
            "sum"));
done:
    return rc;
}

int ranks_mean(ranks *r, device *dev, float *x, size_t n) {
    int rc = ranks_sum(r, dev, x, n);
    if (rc < 0 || r->count == 1) return rc;
    for (size_t i = 0; i < n; i++) x[i] /= (float)r->count;
    return 0;
}

int ranks_gather(ranks *r, device *dev, const float *mine, size_t n, float *all) {
    int rc = 0;
    ASSERT(n <= INT_MAX);
    if (r->count == 1) return dev->op.copy(dev, all, mine, n * sizeof *all);
    TRY(dev->op.sync(dev));
    TRY(checked(MPI_Allgather(mine, (int)n, MPI_FLOAT, all, (int)n, MPI_FLOAT, MPI_COMM_WORLD),
                "gather"));
done:
    return rc;
}

int ranks_gather_back(ranks *r, device *dev, const float *d_all, size_t n, float *d_mine) {
    int rc = dev->op.sync(dev);
    for (size_t i = 0; rc == 0 && i < n; i++)
        d_mine[i] = (float)r->count * d_all[(size_t)r->rank * n + i];
    return rc;
}

int ranks_broadcast(ranks *r, device *dev, float *x, size_t n) {
    int rc = 0;
    if (r->count == 1) return 0;
    TRY(dev->op.sync(dev));
    for (size_t at = 0; at < n; at += CHUNK)
        TRY(checked(MPI_Bcast(x + at, parts(n - at), MPI_FLOAT, 0, MPI_COMM_WORLD), "broadcast"));
done:
    return rc;
}

int ranks_barrier(ranks *r) {
    return r->count == 1 ? 0 : checked(MPI_Barrier(MPI_COMM_WORLD), "barrier");
}
