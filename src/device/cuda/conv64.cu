/* conv64.cu: 3x3 convolutions of 64 to 64 channels with 32 pixels per row, stride 1, bf16, on
 * Hopper (wgmma; built for sm_90a only), with the sums for the norm that follows.
 *
 * Libraries treat pixels as the long side of the product and are bound by shared memory when there
 * are only 64 channels (87 us for 512 images on an H200, 440 TFLOP/s).  Here the weights are the
 * 64-row operand and stay in shared memory throughout; pixels are the other operand, 136 columns:
 * four rows of 34 places, 32 pixels and the padding.  In this layout a tap of the filter is just
 * another offset into the same tile in shared memory, and every pixel is loaded once per tile
 * instead of nine times.  The price: two columns of 34 are computed in vain.
 *
 * A block is a producer (one warpgroup that copies tiles with their halo into a ring) and two
 * consumers that take tiles in turn: while one multiplies, the other writes its results. The
 * data gradient is the same with the filter rotated by 180 degrees ("turned"). */
#include "device/cuda/sums.cuh"

#include "base/status.h"

enum {
    C = 64,
    W = 32,
    WIDE = W + 2,
    TALL = 4, /* rows of a tile */
    PLACES = TALL * WIDE,
    LINE = 128,                   /* bytes per place: 64 channels */
    TILE = (TALL + 2) * WIDE + 4, /* places of a tile with its halo, 1024-byte multiple */
    TILE_BYTES = TILE * LINE,
    TAPS = 9,
    TAP_BYTES = C * LINE,
    STAGES = 4,
    AHEAD = 2,
    OUT_BYTES = PLACES * LINE, /* of one consumer */
    GROUP = 128,               /* threads of a warpgroup */
    THREADS = 3 * GROUP,
    SHARED = TAPS * TAP_BYTES + STAGES * TILE_BYTES + 2 * OUT_BYTES + 1024
};

static_assert(TILE_BYTES % 1024 == 0 && OUT_BYTES % 1024 == 0, "the swizzle repeats at 1024 bytes");

/* Where chunk `at` (16 bytes) of line `row` is stored: the 128-byte swizzle. */
static __device__ inline int chunk_at(int row, int at) {
    return row * LINE + ((at ^ (row & 7)) << 4);
}

static __device__ inline unsigned shared_address(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

/* ---- instructions ---------------------------------------------------------------------------- */

/* The descriptor of an operand: rows of 128 bytes, swizzled, groups of eight rows 1024 bytes
 * apart. */
static __device__ inline uint64_t operand(unsigned address) {
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

/* d += A B on the tensor cores: 64 channels by 136 places, depth 16. */
static __device__ inline void multiply(float (&d)[68], uint64_t a, uint64_t b, int grows) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %70, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n136k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16,"
        "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33,"
        "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50,"
        "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67"
        "}, %68, %69, p, 1, 1, 0, 0;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
          "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
          "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
          "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
          "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),
          "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
        : "l"(a), "l"(b), "r"(grows));
}

static __device__ inline void multiply_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ inline void multiply_end() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
static __device__ inline void multiply_wait() {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

static __device__ inline void barrier_init(uint64_t *b, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count));
}
static __device__ inline void barrier_arrive(uint64_t *b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
static __device__ inline void barrier_wait(uint64_t *b, unsigned phase) {
    asm volatile("{\n.reg .pred p;\n"
                 "again:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra done;\nbra again;\ndone:\n}\n" ::"r"(shared_address(b)),
                 "r"(phase)
                 : "memory");
}
/* Makes ordinary stores visible to the tensor cores. */
static __device__ inline void publish() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Named barriers: 1 and 2 give a consumer its turn to multiply, 3 and 4 synchronize one consumer
 * each. */
static __device__ inline void meet(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
static __device__ inline void give_turn(int id) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(2 * GROUP) : "memory");
}

static __device__ inline void copy_16(unsigned to, const void *from, bool there) {
    int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}

/* Stores four 8x8 matrices of bf16, transposed: rows in registers become columns in memory. */
static __device__ inline void store_turned(unsigned to, const unsigned v[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

static __device__ inline unsigned pair_of(float low, float high) {
    __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *(unsigned *)&v;
}
static __device__ inline float low_of(unsigned v) { return __uint_as_float(v << 16); }
static __device__ inline float high_of(unsigned v) { return __uint_as_float(v & 0xffff0000u); }

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Weights [o][tap][i] to [tap][o][i] or, turned, to [last tap - tap][i][o]. */
static __device__ void place_weights(char *to, const bf16 *w, bool turned) {
    for (int i = threadIdx.x; i < C * TAPS * 8; i += THREADS) {
        int chunk = i % 8, tap = i / 8 % TAPS, o = i / 8 / TAPS;
        uint4 v = *(const uint4 *)(w + (size_t)i * 8);
        if (!turned) {
            *(uint4 *)(to + tap * TAP_BYTES + chunk_at(o, chunk)) = v;
            continue;
        }
        const bf16 *x = (const bf16 *)&v;
#pragma unroll
        for (int j = 0; j < 8; j++)
            *(bf16 *)(to + (TAPS - 1 - tap) * TAP_BYTES + chunk_at(chunk * 8 + j, o / 8) +
                      o % 8 * 2) = x[j];
    }
}

/* Copies rows y0-1 .. y0+TALL of an image, with a zero place on either side.  A thread copies one
 * chunk of every 16th place, so source and destination offsets are computed once for all tiles. */
struct copier {
    enum { TURNS = ((TALL + 2) * WIDE + 15) / 16 };
    int from[TURNS]; /* relative to the row before the tile; -1: padding, -2: nothing to do */
    int to;          /* bytes to the first chunk; the others follow 16 lines apart */
};

static __device__ inline copier copier_of(int tid) {
    copier c;
    int chunk = tid % 8, first = tid / 8;
    c.to = chunk_at(first, chunk);
#pragma unroll
    for (int i = 0; i < copier::TURNS; i++) {
        int place = first + 16 * i, x = place % WIDE - 1;
        c.from[i] = (place / WIDE * W + x) * C + chunk * 8;
        if (x < 0 || x >= W) c.from[i] = -1;
        if (place >= (TALL + 2) * WIDE) c.from[i] = -2;
    }
    return c;
}

static __device__ inline void copy_tile(const copier &c, unsigned to, const bf16 *image, int y0,
                                        int h) {
    const bf16 *first = image + ((ptrdiff_t)y0 - 1) * W * C;
    int low = y0 == 0 ? W * C : 0; /* elements before this one are outside the image */
    int high = y0 + TALL == h ? (TALL + 1) * W * C : (TALL + 2) * W * C;
#pragma unroll
    for (int i = 0; i < copier::TURNS; i++) {
        bool there = c.from[i] >= low && c.from[i] < high;
        if (c.from[i] > -2)
            copy_16(to + c.to + i * 16 * LINE, there ? first + c.from[i] : image, there);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* y = conv(x, w) or, turned, its data gradient; add: y grows.  Grid (blocks, groups); tiles: of one
 * group, per_image of an image. */
static __global__ void __launch_bounds__(THREADS, 1)
    conv64(int tiles, int per_image, const bf16 *x, const bf16 *w, bool turned, bool add, bf16 *y,
           const float *shift, bool wanted, totals t) {
    extern __shared__ char raw[];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    __shared__ float cell[2 * C];
    char *memory = raw + (1024 - (shared_address(raw) & 1023)) % 1024;
    char *ring = memory + TAPS * TAP_BYTES, *outs = ring + STAGES * TILE_BYTES;
    /* the same for a whole warp, which the compiler must know: descriptors are in uniform
     * registers */
    int role = __shfl_sync(~0u, threadIdx.x / GROUP, 0), tid = threadIdx.x % GROUP;
    int h = per_image * TALL;
    size_t image = (size_t)h * W * C, first = (size_t)blockIdx.y * (tiles / per_image) * image;
    int mine = (tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
    if (threadIdx.x == 0)
        for (int i = 0; i < STAGES; i++) barrier_init(&full[i], GROUP), barrier_init(&empty[i], 4);
    place_weights(memory, w, turned);
    if (threadIdx.x < 32 * STAGES) /* the last places of a tile are read in vain */
        *(uint4 *)(ring + threadIdx.x / 32 * TILE_BYTES + (TILE - 4) * LINE +
                   threadIdx.x % 32 * 16) = make_uint4(0, 0, 0, 0);
    publish();
    __syncthreads();
    if (role == 2) {
        copier c = copier_of(tid);
        /* a tile is handed over when AHEAD more have been requested */
        for (int i = 0; i < mine + AHEAD; i++) {
            if (i < mine) {
                int stage = i % STAGES, tile = blockIdx.x + i * gridDim.x;
                if (i >= STAGES) barrier_wait(&empty[stage], (i / STAGES - 1) & 1);
                copy_tile(c, shared_address(ring + stage * TILE_BYTES),
                          x + first + tile / per_image * image, tile % per_image * TALL, h);
            } else {
                asm volatile("cp.async.commit_group;" ::: "memory");
            }
            asm volatile("cp.async.wait_group %0;" ::"n"((int)AHEAD) : "memory");
            if (i < AHEAD) continue;
            publish();
            barrier_arrive(&full[(i - AHEAD) % STAGES]);
        }
    } else {
        int lane = tid % 32, warp = tid / 32, g = lane / 4, q = lane % 4;
        char *out = outs + role * OUT_BYTES;
        unsigned out_at = shared_address(out);
        uint64_t weights = operand(shared_address(memory)),
                 tiles_at = operand(shared_address(ring));
        float sum[2] = {0, 0}, squares[2] = {0, 0}, s[2] = {0, 0};
        for (int e = 0; e < 2; e++)
            if (shift) s[e] = shift[16 * warp + g + 8 * e];
        if (role == 1) give_turn(1);
        for (int i = role; i < mine; i += 2) {
            int stage = i % STAGES, tile = blockIdx.x + i * gridDim.x;
            uint64_t places = tiles_at + stage * (TILE_BYTES >> 4);
            float d[68];
            barrier_wait(&full[stage], (i / STAGES) & 1);
            meet(1 + role, 2 * GROUP);
            multiply_begin();
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    multiply(d, weights + ((tap * TAP_BYTES + k * 32) >> 4),
                             places + (((tap / 3 * WIDE + tap % 3) * LINE + k * 32) >> 4),
                             tap + k > 0);
            multiply_end();
            give_turn(2 - role);
            multiply_wait();
            if (lane == 0) barrier_arrive(&empty[stage]);
            meet(3 + role, GROUP); /* the previous results have been read */
#pragma unroll
            for (int j = 0; j < 17; j += 2) {
                unsigned v[4];
#pragma unroll
                for (int m = 0; m < 4; m++) {
                    int at = j + m / 2;
                    v[m] = at < 17 ? pair_of(d[(at < 17 ? at : 16) * 4 + m % 2 * 2],
                                             d[(at < 17 ? at : 16) * 4 + m % 2 * 2 + 1])
                                   : 0;
                    if (at >= 17 || at == 4 * (q + 1)) continue; /* the two places between rows */
                    float low = low_of(v[m]) - s[m % 2], high = high_of(v[m]) - s[m % 2];
                    sum[m % 2] += low + high;
                    squares[m % 2] += low * low + high * high;
                }
                int row = 8 * (j + lane / 16) + lane % 8;
                if (row >= PLACES) row = PLACES - 8 + lane % 8; /* the same twice if j = 16 */
                if (j == 16) v[2] = v[0], v[3] = v[1];
                store_turned(out_at + chunk_at(row, 2 * warp + (lane / 8 & 1)), v);
            }
            meet(3 + role, GROUP);
            bf16 *to =
                y + first + tile / per_image * image + (size_t)(tile % per_image) * TALL * W * C;
#pragma unroll
            for (int j = 0; j < TALL * W * 8 / GROUP; j++) {
                int at = tid + j * GROUP, pixel = at / 8, place = pixel / W * WIDE + pixel % W;
                uint4 v = *(const uint4 *)(out + chunk_at(place, at % 8));
                if (add) {
                    uint4 old = *(const uint4 *)(to + (size_t)at * 8);
                    unsigned *a = (unsigned *)&v;
                    const unsigned *b = (const unsigned *)&old;
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        a[e] = pair_of(low_of(a[e]) + low_of(b[e]), high_of(a[e]) + high_of(b[e]));
                }
                *(uint4 *)(to + (size_t)at * 8) = v;
            }
        }
        if (wanted)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                for (int m = 1; m < 4; m *= 2) {
                    sum[e] += __shfl_xor_sync(~0u, sum[e], m);
                    squares[e] += __shfl_xor_sync(~0u, squares[e], m);
                }
                int channel = 16 * warp + g + 8 * e;
                if (role == 1 && q == 0) cell[channel] = sum[e], cell[C + channel] = squares[e];
            }
        if (wanted) { /* both consumers: the second's sums are added to the first's */
            meet(5, 2 * GROUP);
            float *part = t.partial + ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * 2 * C;
            for (int e = 0; e < 2 && role == 0 && q == 0; e++) {
                int channel = 16 * warp + g + 8 * e;
                part[channel] = sum[e] + cell[channel];
                part[C + channel] = squares[e] + cell[C + channel];
            }
        }
    }
    if (wanted) fold<4, THREADS>(C, C, (float *)outs, t);
}

extern "C" bool cuda_conv64_takes(device *dev, const conv_shape *s) {
    return dev->type == ACT_BF16 && cuda_generation(dev) == 90 && s->ci == C && s->co == C &&
           s->k == 3 && s->stride == 1 && s->pad == 1 && s->w == W && s->h % TALL == 0;
}

extern "C" int cuda_conv64(device *dev, const conv_plan *p, const act *x, const void *w,
                           bool turned, bool add, act *y, const float *shift, const norm_rest *rest,
                           float *sums) {
    int rc = 0;
    const conv_shape *s = &p->s;
    int groups = sums ? s->groups : 1, per_image = s->h / TALL, tiles = s->n / groups * per_image;
    int blocks = cuda_processors(dev) / groups;
    blocks = blocks < 1 ? 1 : blocks < tiles ? blocks : tiles;
    totals t = {};
    t.sums = sums;
    t.counters = cuda_counters(dev);
    if (rest)
        t.finish =
            finishing_of(rest->passes, rest->count, rest->momentum, rest->running, rest->stat);
    TRY(cuda_scratch(dev, (size_t)blocks * groups * 2 * C * sizeof(float), (void **)&t.partial));
    TRY(allow_shared(conv64, SHARED));
    launch(dev, conv64, dim3(blocks, groups), THREADS, SHARED, tiles, per_image, (const bf16 *)x,
           (const bf16 *)w, turned, add, (bf16 *)y, shift, sums != NULL, t);
    TRY(launched("convolution of 64 channels"));
done:
    return rc;
}
