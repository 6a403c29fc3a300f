/* single.c: ranks.h for a build without MPI: one process. */
#include "ranks/ranks.h"

#include "base/status.h"

#include <string.h>

int ranks_open(ranks *r) {
    int launched = ranks_launched();
    *r = (ranks){.count = 1, .locals = 1};
    if (launched > 1)
        return fail(CONR_EINVAL,
                    "%d processes were started, but this conr was built without MPI; build it with "
                    "cmake --preset mpi, or set CONR_ALONE=1 to run each on its own",
                    launched);
    return 0;
}

int ranks_part(const ranks *r, int size, ranks *out) {
    ASSERT(size == 1);
    *out = *r;
    return 0;
}

void ranks_close(ranks *r) { (void)r; }

int ranks_sum(ranks *r, device *dev, float *x, size_t n) {
    (void)r, (void)dev, (void)x, (void)n;
    return 0;
}

int ranks_mean(ranks *r, device *dev, float *x, size_t n) {
    (void)r, (void)dev, (void)x, (void)n;
    return 0;
}

int ranks_mean_begin(ranks *r, device *dev, float *x, size_t n) {
    (void)r, (void)dev, (void)x, (void)n;
    return 0;
}

int ranks_mean_end(ranks *r, device *dev) {
    (void)r, (void)dev;
    return 0;
}

int ranks_gather(ranks *r, device *dev, const void *mine, size_t bytes, void *all) {
    (void)r;
    return all == mine ? 0 : dev->op.copy(dev, all, mine, bytes);
}

int ranks_gather_back(ranks *r, device *dev, const float *d_all, size_t n, float *d_mine) {
    (void)r;
    return d_mine == d_all ? 0 : dev->op.copy(dev, d_mine, d_all, n * sizeof *d_mine);
}

int ranks_broadcast(ranks *r, void *x, size_t bytes) {
    (void)r, (void)x, (void)bytes;
    return 0;
}

int ranks_broadcast_from(ranks *r, int who, void *x, size_t bytes) {
    (void)r, (void)who, (void)x, (void)bytes;
    return 0;
}

int ranks_all_gather(ranks *r, const void *mine, size_t bytes, void *all) {
    (void)r;
    if (all != mine) memcpy(all, mine, bytes);
    return 0;
}

int ranks_sum_ints(ranks *r, int64_t *x, size_t n) {
    (void)r, (void)x, (void)n;
    return 0;
}

int ranks_any(ranks *r, bool yes, bool *any) {
    (void)r;
    *any = yes;
    return 0;
}

ranks_times ranks_time(void) { return (ranks_times){0}; }
void ranks_watch(bool on) { (void)on; }
