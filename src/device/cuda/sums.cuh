/* sums.cuh: sums over the rows of [rows,c], per group and channel, always in the same order: a
 * thread's rows, the block's threads in halves, then the blocks in order, by the block that
 * finishes last.  No float is ever added by an atomic. */
#ifndef CONR_SUMS_CUH
#define CONR_SUMS_CUH

#include "vector.cuh"

/* LANES: vectors of a row that one block takes.  A cache line's worth of bf16: few, so that wide
 * rows are spread over blocks and each has few partial sums to add (with whole rows of 512 channels
 * the last block's part took 11 us of 16). */
enum { SUMMING = 512, LANES = 8 };

/* How threads and blocks lie over [rows,c]: grid (blocks, groups, chunks). */
typedef struct lie {
    int lanes, height; /* of a block: vectors by rows */
    int blocks, chunks;
} lie;

static inline lie lie_of(device *dev, int threads, int per_processor, int groups, size_t rows,
                         int vectors) {
    lie l;
    l.lanes = vectors < LANES ? vectors : vectors > 1 << 16 ? 8 * LANES : LANES;
    l.height = threads / l.lanes;
    l.chunks = (vectors + l.lanes - 1) / l.lanes;
    long most = (long)((rows + l.height * 4 - 1) / ((size_t)l.height * 4));
    long want = (long)cuda_processors(dev) * per_processor / ((long)groups * l.chunks);
    long blocks = want < most ? want : most;
    l.blocks = (int)(blocks < 1 ? 1 : blocks);
    return l;
}

static inline size_t partial_floats(const lie *l, int groups, int v) {
    return (size_t)groups * l->chunks * l->blocks * 2 * l->lanes * v;
}

/* Where a thread stands. */
struct place {
    int row, channel; /* first row; channel < 0: has nothing to do */
    int step;         /* from row to row */
    size_t group_at;  /* offset of its group, in numbers */
};

template <int V> static __device__ inline place place_of(const lie &l, int rows, int c) {
    place p;
    int lane = threadIdx.x % l.lanes, height = threadIdx.x / l.lanes;
    int vector = blockIdx.z * l.lanes + lane;
    p.row = blockIdx.x * l.height + height;
    p.channel = height < l.height && vector < c / V ? vector * V : -1;
    p.step = gridDim.x * l.height;
    p.group_at = (size_t)blockIdx.y * rows * c;
    return p;
}

/* What turns sums into statistics; as the table's norm_finish. */
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

/* Differences in double, the root in float: double roots and divisions are slow, and two roundings
 * of a float are within what is promised. */
static __device__ inline void finish_channel(int c, int groups, const finishing &f,
                                             const float *sums, int j) {
    int per_pass = groups / f.passes;
    float running_mean = f.running[j], running_var = f.running[c + j];
    double shift = running_mean;
    for (int pass = 0; pass < f.passes; pass++) {
        double mean_sum = 0, var_sum = 0;
        for (int g = pass * per_pass; g < (pass + 1) * per_pass; g++) {
            double mean = __ldcg(&sums[(2 * (size_t)g + 0) * c + j]) * f.inverse;
            double var = __ldcg(&sums[(2 * (size_t)g + 1) * c + j]) * f.inverse - mean * mean;
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
    finishing finish;      /* with sums alone; stat NULL: none */
} totals;

/* Whether this block is the last of `count` to come here. */
static __device__ inline bool is_last(unsigned *counter, unsigned count) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(counter, count - 1) == count - 1;
    __syncthreads();
    if (last) __threadfence();
    return last;
}

/* The blocks' partial sums, once the last block of its group and chunk is here: a few parts side by
 * side, each in order, then the parts.  F: floats read at once.  flat: [SUMMING * F]. */
template <int F> static __device__ void fold(int width, int c, float *flat, const totals &t) {
    int tid = threadIdx.x, group = blockIdx.y, chunk = blockIdx.z, set = group * gridDim.z + chunk;
    if (!is_last(&t.counters[set], gridDim.x)) return;
    int items = 2 * width / F, parts = SUMMING / items, part = tid / items, item = tid % items;
    const float *from = t.partial + (size_t)set * gridDim.x * 2 * width;
    if (part < parts) {
        float sum[F] = {0};
#pragma unroll 8
        for (int block = part; block < gridDim.x; block += parts) {
            float x[F];
            floats<float, F>(load<float, F>(from + (size_t)block * 2 * width + item * F), x);
            for (int i = 0; i < F; i++) sum[i] += x[i];
        }
        for (int i = 0; i < F; i++) flat[(part * items + item) * F + i] = sum[i];
    }
    __syncthreads();
    float *out = t.sums ? t.sums + (size_t)group * 2 * c + chunk * width : NULL;
    for (int i = tid; i < 2 * width; i += SUMMING) {
        float sum = 0;
        for (part = 0; part < parts; part++) sum += flat[part * 2 * width + i];
        int which = i / width, channel = chunk * width + i % width;
        if (channel >= c) continue;
        if (out) out[which * c + i % width] = sum;
        float *total = which ? t.second : t.first;
        if (!out && total) total[channel] = sum + (t.add ? total[channel] : 0);
    }
    if (!t.sums || (!t.first && !t.finish.stat)) return;
    if (!is_last(&t.counters[gridDim.y * gridDim.z + chunk], gridDim.y)) return;
    if (t.finish.stat) {
        int channel = chunk * width + tid;
        if (tid < width && channel < c) finish_channel(c, gridDim.y, t.finish, t.sums, channel);
        return;
    }
    for (int i = tid; i < 2 * width; i += SUMMING) {
        int which = i / width, channel = chunk * width + i % width;
        if (channel >= c) continue;
        float *total = which ? t.second : t.first, sum = t.add ? total[channel] : 0;
        for (int g = 0; g < gridDim.y; g++)
            sum += __ldcg(&t.sums[((size_t)g * 2 + which) * c + channel]);
        total[channel] = sum;
    }
}

/* From every thread's sums a, b of its channels to the totals. */
template <int V>
static __device__ void sum_up(const lie &l, int c, float a[V], float b[V], const totals &t) {
    __shared__ alignas(16) float cell[2 * V][SUMMING];
    int tid = threadIdx.x, height = tid / l.lanes, width = l.lanes * V;
    for (int n = l.height; n > 1;) {
        int half = (n + 1) / 2;
        __syncthreads();
        if (height >= half && height < n)
            for (int i = 0; i < V; i++) cell[i][tid] = a[i], cell[V + i][tid] = b[i];
        __syncthreads();
        if (height + half < n)
            for (int i = 0; i < V; i++) {
                a[i] += cell[i][tid + half * l.lanes];
                b[i] += cell[V + i][tid + half * l.lanes];
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
