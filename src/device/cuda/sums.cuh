/* sums.cuh: sums over the rows of [rows,c], per group and channel, always in the same order: the
 * rows of a thread, the threads of a block as a tree, then the blocks in order, by the block
 * that finishes last.  No float is ever added by an atomic. */
#ifndef CONR_SUMS_CUH
#define CONR_SUMS_CUH

#include "device/cuda/vector.cuh"

/* LANES: vectors of a row that one block takes, one cache line of bf16.  Few, so that wide rows are
 * spread over blocks and each has few partial sums to add (with whole rows of 512 channels the work
 * of the last block took 11 us of 16). */
enum { SUMMING = 512, LANES = 8 };

/* How threads and blocks cover [rows,c]: grid (blocks, groups, chunks). */
typedef struct layout {
    int lanes, height; /* of a block: vectors by rows */
    int blocks, chunks;
} layout;

static inline layout layout_of(device *dev, int threads, int per_processor, int groups, size_t rows,
                               int vectors) {
    layout l;
    l.lanes = vectors < LANES ? vectors : vectors > 1 << 16 ? 8 * LANES : LANES;
    l.height = threads / l.lanes;
    l.chunks = (vectors + l.lanes - 1) / l.lanes;
    long most = (long)((rows + l.height * 4 - 1) / ((size_t)l.height * 4));
    long want = (long)cuda_processors(dev) * per_processor / ((long)groups * l.chunks);
    long blocks = want < most ? want : most;
    l.blocks = (int)(blocks < 1 ? 1 : blocks);
    return l;
}

static inline size_t partial_floats(const layout *l, int groups, int v) {
    return (size_t)groups * l->chunks * l->blocks * 2 * l->lanes * v;
}

/* What a thread works on. */
struct place {
    int row, channel; /* first row; channel < 0: nothing */
    int step;         /* from row to row */
    size_t group_at;  /* offset of its group, in elements */
};

template <int V> static __device__ inline place place_of(const layout &l, int rows, int c) {
    place p;
    int lane = threadIdx.x % l.lanes, height = threadIdx.x / l.lanes;
    int vector = blockIdx.z * l.lanes + lane;
    p.row = blockIdx.x * l.height + height;
    p.channel = height < l.height && vector < c / V ? vector * V : -1;
    p.step = gridDim.x * l.height;
    p.group_at = (size_t)blockIdx.y * rows * c;
    return p;
}

/* What turns sums into statistics, as norm_finish of the table does. */
typedef struct finishing {
    int passes;
    float momentum;
    double inverse, unbiased; /* 1/count, count/(count-1) */
    float *running, *stat;    /* stat NULL: nothing to do */
} finishing;

static inline finishing finishing_of(int passes, double count, float momentum, float *running,
                                     float *stat) {
    return finishing{passes,  momentum, 1 / count, count > 1 ? count / (count - 1) : 1,
                     running, stat};
}

/* sums: those of channel j; consecutive ones (two per group) are `stride` apart.  Differences
 * are in double, the root in float: double roots and divisions are slow, and two roundings of a
 * float are within the bound. */
static __device__ inline void finish_channel(int c, int groups, const finishing &f,
                                             const float *sums, int stride, int j) {
    int per_pass = groups / f.passes;
    float running_mean = f.running[j], running_var = f.running[c + j];
    double shift = running_mean;
    for (int pass = 0; pass < f.passes; pass++) {
        double mean_sum = 0, var_sum = 0;
        for (int g = pass * per_pass; g < (pass + 1) * per_pass; g++) {
            double mean = sums[(2 * (size_t)g + 0) * stride] * f.inverse;
            double var = sums[(2 * (size_t)g + 1) * stride] * f.inverse - mean * mean;
            if (var < 0) var = 0;
            f.stat[(2 * (size_t)g + 0) * c + j] = (float)(mean + shift);
            f.stat[(2 * (size_t)g + 1) * c + j] = 1 / sqrtf((float)(var + NORM_EPS));
            mean_sum += mean + shift;
            var_sum += var;
        }
        float share = 1 / (float)per_pass;
        running_mean += f.momentum * ((float)mean_sum * share - running_mean);
        running_var += f.momentum * ((float)(f.unbiased * var_sum) * share - running_var);
    }
    if (f.momentum <= 0) return;
    f.running[j] = running_mean;
    f.running[c + j] = running_var;
}

/* Where the results of a summing kernel go. */
typedef struct totals {
    float *partial;        /* [groups][chunks][blocks][2][lanes * V] */
    unsigned *counters;    /* [groups * chunks], then [chunks] */
    float *sums;           /* [groups][2][c] or NULL */
    float *first, *second; /* [c]: totals over the groups of sums 0 and 1, or NULL */
    bool add;              /* to first and second */
    finishing finish;      /* only with sums; stat NULL: none */
} totals;

/* Whether this block is the last of `count` to get here. */
static __device__ inline bool is_last(unsigned *counter, unsigned count) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(counter, count - 1) == count - 1;
    __syncthreads();
    if (last) __threadfence();
    return last;
}

/* Adds up the partial sums of all blocks and groups, by the last block of a chunk: in several parts
 * in parallel, each in order, then the parts in order.  F: floats read at once.
 * flat: [THREADS * F]. */
template <int F, int THREADS = SUMMING>
static __device__ void fold(int width, int c, float *flat, const totals &t) {
    enum { KEPT = 2 * 2 * 64 }; /* two groups of 64 channels need not go through memory */
    __shared__ float kept[KEPT];
    int tid = threadIdx.x, chunk = blockIdx.z, groups = gridDim.y, blocks = gridDim.x;
    if (!is_last(&t.counters[chunk], blocks * groups)) return;
    int items = 2 * width / F, slots = THREADS / items, slot = tid / items, item = tid % items;
    int at_once = groups < slots ? groups : slots, parts = slots / at_once;
    bool keep = groups * 2 * width <= KEPT;
    float total[2] = {0, 0}; /* over the groups; a thread has at most two */
    for (int first = 0; first < groups; first += at_once) {
        int group = first + slot / parts;
        if (slot < at_once * parts && group < groups) {
            const float *from =
                t.partial + ((size_t)group * gridDim.z + chunk) * blocks * 2 * width + item * F;
            float sum[F] = {0};
#pragma unroll 8
            for (int block = slot % parts; block < blocks; block += parts) {
                float x[F];
                floats<float, F>(load<float, F>(from + (size_t)block * 2 * width), x);
                for (int i = 0; i < F; i++) sum[i] += x[i];
            }
            for (int i = 0; i < F; i++) flat[(slot * items + item) * F + i] = sum[i];
        }
        __syncthreads();
        for (int i = tid, turn = 0; i < 2 * width; i += THREADS, turn++)
            for (int g = 0; g < at_once && first + g < groups; g++) {
                float all = 0;
                for (int j = 0; j < parts; j++) all += flat[(g * parts + j) * 2 * width + i];
                int channel = chunk * width + i % width;
                if (t.sums && channel < c)
                    t.sums[((size_t)(first + g) * 2 + i / width) * c + channel] = all;
                if (keep) kept[(first + g) * 2 * width + i] = all;
                total[turn & 1] += all;
            }
        __syncthreads();
    }
    for (int i = tid, turn = 0; i < 2 * width && t.first; i += THREADS, turn++) {
        float *to = i / width ? t.second : t.first;
        int channel = chunk * width + i % width;
        if (to && channel < c) to[channel] = total[turn & 1] + (t.add ? to[channel] : 0);
    }
    int channel = chunk * width + tid;
    if (t.finish.stat && tid < width && channel < c) {
        if (keep)
            finish_channel(c, groups, t.finish, kept + tid, width, channel);
        else
            finish_channel(c, groups, t.finish, t.sums + channel, c, channel);
    }
}

/* The totals, from the sums a, b that every thread has of its channels. */
template <int V>
static __device__ void sum_up(const layout &l, int c, float a[V], float b[V], const totals &t) {
    __shared__ alignas(16) float cell[2 * V][SUMMING];
    int tid = threadIdx.x, height = tid / l.lanes, width = l.lanes * V, n = l.height;
    if (l.lanes == 8) { /* four rows per warp: exchanged within it first */
#pragma unroll
        for (int i = 0; i < V; i++) {
            a[i] += __shfl_xor_sync(~0u, a[i], 8);
            b[i] += __shfl_xor_sync(~0u, b[i], 8);
            a[i] += __shfl_xor_sync(~0u, a[i], 16);
            b[i] += __shfl_xor_sync(~0u, b[i], 16);
        }
        n = SUMMING / 32;
        height = tid % 32 < 8 ? tid / 32 : n;
    }
    int step = l.lanes == 8 ? 32 : l.lanes; /* threads from one height to the next */
    while (n > 1) {
        int half = (n + 3) / 4; /* four to one */
        __syncthreads();
        if (height >= half && height < n)
            for (int i = 0; i < V; i++) cell[i][tid] = a[i], cell[V + i][tid] = b[i];
        __syncthreads();
        if (height < half)
            for (int at = height + half; at < n; at += half)
                for (int i = 0; i < V; i++) {
                    a[i] += cell[i][at * step + tid % step];
                    b[i] += cell[V + i][at * step + tid % step];
                }
        n = half;
    }
    int set = blockIdx.y * gridDim.z + blockIdx.z;
    float *mine = t.partial + ((size_t)set * gridDim.x + blockIdx.x) * 2 * width;
    if (tid < l.lanes)
        for (int i = 0; i < V; i++) {
            mine[tid * V + i] = a[i];
            mine[width + tid * V + i] = b[i];
        }
    fold<(V >= 4 ? 4 : 1)>(width, c, &cell[0][0], t);
}

#endif
