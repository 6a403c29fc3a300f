/* stem.cu: the first convolution of small images, 3 -> 64 channels, 3x3, stride 1, in bf16.
 *
 * Libraries pad its three channels to eight and are slow even so (79 + 11 us forward and 90 us
 * filter gradient for 512 images of 32x32 on an H200, while writing the output takes 16).  Here a
 * block keeps a strip of image rows in shared memory and gathers patches from it as operands of
 * tensor core products; the sums for the norm that follows come from registers.
 *
 * The 27 values of a patch have index k = 10 ky + 3 kx + c, so that pairs of them are adjacent;
 * those with k % 10 = 9 and the last two have weight 0. */
#include "device/cuda/sums.cuh"

#include "base/status.h"

enum {
    CO = 64,
    CI = 3,
    ROWS = 16, /* of a strip: one per warp */
    WARPS = SUMMING / 32,
    MARGIN = 8, /* elements before a row in shared memory: 16 bytes, the last 3 are the padding */
    K = 32
};

static_assert(WARPS == ROWS, "one warp per row");

static __host__ __device__ inline int strip_width(int w) { return CI * w + 2 * MARGIN; }
static __host__ __device__ inline int strip_size(int w) { return (ROWS + 2) * strip_width(w); }

/* 16 bytes from global to shared memory, or zeros; they are there after copies_wait. */
static __device__ inline void copy_16(bf16 *to, const bf16 *from, bool there) {
    unsigned address = (unsigned)__cvta_generic_to_shared(to);
    int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(bytes));
}
static __device__ inline void copies_end() { asm volatile("cp.async.commit_group;"); }
template <int N> static __device__ inline void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N));
}

/* Rows y0-1 .. y0+ROWS of an image [h,w,3] to a strip. */
static __device__ inline void copy_strip(bf16 *strip, const bf16 *image, int y0, int h, int w) {
    int per_row = CI * w / 8;
    for (int i = threadIdx.x; i < (ROWS + 2) * per_row; i += SUMMING) {
        int row = i / per_row, at = i % per_row * 8, y = y0 - 1 + row;
        bool there = y >= 0 && y < h;
        copy_16(strip + row * strip_width(w) + MARGIN + at,
                image + ((size_t)(there ? y : 0) * w) * CI + at, there);
    }
    copies_end();
}

/* D += A B of 16x16 by 16x8 */
static __device__ inline void product(float d[4], const unsigned a[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ inline unsigned pair(const bf16 *low, const bf16 *high) {
    return *(const unsigned short *)low | (unsigned)*(const unsigned short *)high << 16;
}

static __device__ inline unsigned pair_of(float low, float high) {
    __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *(unsigned *)&v;
}

/* The offset of value k of a patch from its upper left corner; any if its weight is 0. */
static __device__ inline int patch_at(int k, int w) {
    return k < 30 ? k / 10 * strip_width(w) + k % 10 : 0;
}

static __device__ inline float weight_at(const float *w, int channel, int k) {
    return k < 30 && k % 10 < 9 ? w[channel * 27 + k / 10 * 9 + k % 10] : 0;
}

/* Pixels are the rows of the product, channels its columns, in an order that gives a thread eight
 * adjacent channels: column n of tile t is channel 32 (t/4) + 8 (n/2) + 2 (t%4) + n%2. */
static __device__ inline int channel_at(int t, int n) {
    return t / 4 * 32 + n / 2 * 8 + t % 4 * 2 + n % 2;
}

/* Grid (blocks, groups).  Dynamic shared memory: two strips. */
static __global__ void __launch_bounds__(SUMMING, 1)
    stem_forward(int images, int h, int w, const bf16 *x, const float *weight, bf16 *y,
                 const float *shift, bool wanted, totals t) {
    extern __shared__ __align__(16) bf16 strips[];
    __shared__ alignas(16) float cell[4 * SUMMING];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    int per_image = h / ROWS, items = images * per_image, at[2][2];
    unsigned b[2][8][2];
    float sum[2][8][2] = {}, s[8][2];
    x += (size_t)blockIdx.y * images * h * w * CI;
    y += (size_t)blockIdx.y * images * h * w * CO;
    for (int i = threadIdx.x; i < 2 * strip_size(w); i += SUMMING) strips[i] = __float2bfloat16(0);
    for (int step = 0; step < 2; step++)
        for (int half = 0; half < 2; half++) {
            int k = 16 * step + 8 * half + 2 * q;
            at[step][half] = patch_at(k, w);
            for (int n = 0; n < 8; n++) {
                int channel = channel_at(n, g);
                b[step][n][half] =
                    pair_of(weight_at(weight, channel, k), weight_at(weight, channel, k + 1));
            }
        }
    for (int n = 0; n < 8; n++)
        for (int e = 0; e < 2; e++) s[n][e] = shift ? shift[channel_at(n, 2 * q + e)] : 0;
    __syncthreads();
    int item = blockIdx.x;
    if (item < items)
        copy_strip(strips, x + (size_t)(item / per_image) * h * w * CI, item % per_image * ROWS, h,
                   w);
    for (int turn = 0; item < items; item += gridDim.x, turn ^= 1) {
        int next = item + gridDim.x;
        if (next < items)
            copy_strip(strips + (turn ^ 1) * strip_size(w),
                       x + (size_t)(next / per_image) * h * w * CI, next % per_image * ROWS, h, w);
        if (next < items)
            copies_wait<1>();
        else
            copies_wait<0>();
        __syncthreads();
        const bf16 *row = strips + turn * strip_size(w) + warp * strip_width(w) + MARGIN - CI;
        bf16 *out = y + ((size_t)item * ROWS + warp) * w * CO + q * 8;
        for (int x0 = 0; x0 < w; x0 += 16) {
            float d[8][4] = {};
#pragma unroll
            for (int step = 0; step < 2; step++) {
                const bf16 *low = row + CI * (x0 + g), *high = low + CI * 8;
                const bf16 *l0 = low + at[step][0], *l1 = low + at[step][1];
                const bf16 *h0 = high + at[step][0], *h1 = high + at[step][1];
                unsigned a[4] = {pair(l0, l0 + 1), pair(h0, h0 + 1), pair(l1, l1 + 1),
                                 pair(h1, h1 + 1)};
#pragma unroll
                for (int n = 0; n < 8; n++) product(d[n], a, b[step][n][0], b[step][n][1]);
            }
#pragma unroll
            for (int half = 0; half < 2; half++) /* pixels g and g + 8 */
#pragma unroll
                for (int part = 0; part < 2; part++) {
                    unsigned v[4];
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        v[i] = pair_of(d[4 * part + i][2 * half], d[4 * part + i][2 * half + 1]);
                    *(uint4 *)(out + (size_t)(x0 + g + 8 * half) * CO + part * 32) =
                        make_uint4(v[0], v[1], v[2], v[3]);
#pragma unroll
                    for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int e = 0; e < 2; e++) { /* sums of what was written */
                            float z = __uint_as_float(e ? v[i] & 0xffff0000u : v[i] << 16) -
                                      s[4 * part + i][e];
                            sum[0][4 * part + i][e] += z;
                            sum[1][4 * part + i][e] += z * z;
                        }
                }
        }
        __syncthreads();
    }
    if (!wanted) return;
#pragma unroll
    for (int which = 0; which < 2; which++)
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float z = sum[which][n][e];
                for (int m = 4; m < 32; m *= 2) z += __shfl_xor_sync(~0u, z, m);
                if (g == 0) cell[warp * 2 * CO + which * CO + channel_at(n, 2 * q + e)] = z;
            }
    __syncthreads();
    float *mine = t.partial + ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * 2 * CO;
    if (threadIdx.x < 2 * CO) {
        float z = 0;
        for (int i = 0; i < WARPS; i++) z += cell[i * 2 * CO + threadIdx.x];
        mine[threadIdx.x] = z;
    }
    fold<4>(CO, CO, cell, t);
}

/* Values of a patch are the rows, channels the columns, and the sum is over pixels: thread (g,q)
 * has pixels 4q .. 4q+3 of sixteen and, of dy, channels 8g .. 8g+7, which is 16 bytes per pixel.
 * partial: [blocks][K][CO] */
static __global__ void __launch_bounds__(SUMMING, 1)
    stem_back_filter(int images, int h, int w, const bf16 *x, const bf16 *dy, float *partial) {
    extern __shared__ __align__(16) bf16 strips[];
    __shared__ float cell[K * CO];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    int per_image = h / ROWS, items = images * per_image, at[4];
    float d[2][8][4] = {};
    for (int i = 0; i < 4; i++) at[i] = patch_at(g + 8 * i, w);
    for (int i = threadIdx.x; i < 2 * strip_size(w); i += SUMMING) strips[i] = __float2bfloat16(0);
    for (int i = threadIdx.x; i < K * CO; i += SUMMING) cell[i] = 0;
    __syncthreads();
    int item = blockIdx.x;
    if (item < items)
        copy_strip(strips, x + (size_t)(item / per_image) * h * w * CI, item % per_image * ROWS, h,
                   w);
    for (int turn = 0; item < items; item += gridDim.x, turn ^= 1) {
        int next = item + gridDim.x;
        if (next < items)
            copy_strip(strips + (turn ^ 1) * strip_size(w),
                       x + (size_t)(next / per_image) * h * w * CI, next % per_image * ROWS, h, w);
        if (next < items)
            copies_wait<1>();
        else
            copies_wait<0>();
        __syncthreads();
        const bf16 *row = strips + turn * strip_size(w) + warp * strip_width(w) + MARGIN - CI;
        const bf16 *in = dy + ((size_t)item * ROWS + warp) * w * CO + g * 8;
#pragma unroll 2
        for (int x0 = 0; x0 < w; x0 += 16) {
            vec<unsigned short, 8> v[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = *(const vec<unsigned short, 8> *)(in + (size_t)(x0 + 4 * q + i) * CO);
            const bf16 *patch = row + CI * (x0 + 4 * q);
            unsigned a[2][4];
#pragma unroll
            for (int m = 0; m < 2; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const bf16 *p = patch + at[2 * m + half];
                    a[m][half] = pair(p, p + CI);
                    a[m][2 + half] = pair(p + 2 * CI, p + 3 * CI);
                }
#pragma unroll
            for (int n = 0; n < 8; n++) {
                unsigned b0 = v[0].x[n] | (unsigned)v[1].x[n] << 16;
                unsigned b1 = v[2].x[n] | (unsigned)v[3].x[n] << 16;
                product(d[0][n], a[0], b0, b1);
                product(d[1][n], a[1], b0, b1);
            }
        }
        __syncthreads();
    }
    for (int turn = 0; turn < WARPS; turn++) { /* warp by warp: always the same order */
        if (warp == turn)
            for (int i = 0; i < 64; i++) cell[i * 32 + lane] += d[i / 32][i / 4 % 8][i % 4];
        __syncthreads();
    }
    for (int j = threadIdx.x; j < K * CO; j += SUMMING) {
        int i = j / 32, k = i / 32 * 16 + j % 32 / 4 + i % 4 / 2 * 8; /* row g or g + 8 */
        int channel = (j % 4 * 2 + i % 2) * 8 + i / 4 % 8;            /* column 2q or 2q + 1 */
        partial[((size_t)blockIdx.x * K + k) * CO + channel] = cell[j];
    }
}

/* dw[channel][k] from the parts of all blocks; a block takes 32 channels of one k. */
static __global__ void stem_fold(int blocks, const float *partial, bool add, float *dw) {
    __shared__ float part[8][32];
    int lane = threadIdx.x % 32, share = threadIdx.x / 32;
    int k = blockIdx.x / 2, channel = blockIdx.x % 2 * 32 + lane;
    float sum = 0;
    if (k % 10 == 9) return;
#pragma unroll 4
    for (int i = share; i < blocks; i += 8) sum += partial[((size_t)i * K + k) * CO + channel];
    part[share][lane] = sum;
    __syncthreads();
    if (share) return;
    float *to = &dw[channel * 27 + k / 10 * 9 + k % 10];
    sum = add ? *to : 0;
    for (int i = 0; i < 8; i++) sum += part[i][lane];
    *to = sum;
}

extern "C" bool cuda_stem_takes(device *dev, const conv_shape *s) {
    return dev->type == ACT_BF16 && s->ci == CI && s->co == CO && s->k == 3 && s->stride == 1 &&
           s->pad == 1 && s->h % ROWS == 0 && s->w % 16 == 0 && s->w <= 128;
}

extern "C" int cuda_stem_forward(device *dev, const conv_plan *p, const act *x, const float *w,
                                 act *y, const float *shift, const norm_rest *rest, float *sums) {
    int rc = 0;
    const conv_shape *s = &p->s;
    size_t bytes = 2 * strip_size(s->w) * sizeof(bf16);
    int blocks = cuda_processors(dev) / s->groups, items = s->n / s->groups * (s->h / ROWS);
    blocks = blocks < 1 ? 1 : blocks < items ? blocks : items;
    totals t = {};
    t.sums = sums;
    t.counters = cuda_counters(dev);
    if (rest)
        t.finish =
            finishing_of(rest->passes, rest->count, rest->momentum, rest->running, rest->stat);
    TRY(cuda_scratch(dev, (size_t)blocks * s->groups * 2 * CO * sizeof(float),
                     (void **)&t.partial));
    TRY(allow_shared(stem_forward, bytes));
    launch(dev, stem_forward, dim3(blocks, s->groups), SUMMING, bytes, s->n / s->groups, s->h, s->w,
           (const bf16 *)x, w, (bf16 *)y, shift, sums != NULL, t);
    TRY(launched("conv_forward of the stem"));
done:
    return rc;
}

extern "C" int cuda_stem_back_filter(device *dev, const conv_plan *p, const act *x, const act *dy,
                                     bool add, float *dw) {
    int rc = 0;
    const conv_shape *s = &p->s;
    size_t bytes = 2 * strip_size(s->w) * sizeof(bf16);
    int blocks = cuda_processors(dev), items = s->n * (s->h / ROWS);
    blocks = blocks < items ? blocks : items;
    float *partial;
    TRY(cuda_scratch(dev, (size_t)blocks * K * CO * sizeof(float), (void **)&partial));
    TRY(allow_shared(stem_back_filter, bytes));
    launch(dev, stem_back_filter, blocks, SUMMING, bytes, s->n, s->h, s->w, (const bf16 *)x,
           (const bf16 *)dy, partial);
    TRY(launched("conv_back_filter of the stem"));
    launch(dev, stem_fold, 30 * 2, 256, 0, blocks, partial, add, dw);
    TRY(launched("conv_back_filter of the stem"));
done:
    return rc;
}
