/* stem_kernel.h: the two kernels of stem.c, included there once per instruction set (hence no
 * include guard), with
 *   TARGET    an attribute
 *   NAMED     names with an ending of their own
 *   VL        floats in a vector
 *   NV        vectors of outputs in a panel
 *   MR        pixels of a tile, forward; 4 or more
 *   LOTS      filter gradient: lots of three inputs
 *   AT_ONCE   filter gradient: vectors of outputs with sums in registers together; divides NV
 *
 * Both multiply vectors of outputs by single floats of the image, three inputs of a pixel at a
 * time.  NEON loads them for several pixels at once and takes them from the registers lane by lane,
 * so the distance between pixels must be a constant; wider machines broadcast them from memory.
 * `pixels`, `step` and `has_sums` become constants when these functions are inlined. */
#if VL == 4
#define THREE_INPUTS(name, x) const vector name = *(const vector *)(x)
/* the same for `pixels` pixels: INPUT(r, t) is input t of pixel r */
#define INPUTS_OF_PIXELS(x)                                                                        \
    vector input[(MR * 6 + 6) / 4];                                                                \
    UNROLL for (int i = 0; i < (step * (pixels - 1) + 6) / 4; i++) input[i] =                      \
        *(const vector *)((x) + 4 * i)
#define INPUT(r, t) input[(step * (r) + (t)) / 4][(step * (r) + (t)) % 4]
#else
#define THREE_INPUTS(name, x) const float *const name = (x)
#define INPUTS_OF_PIXELS(x)   const float *const input = (x)
#define INPUT(r, t)           input[step * (r) + (t)]
#endif

/* The outputs of some pixels: acc += three inputs times their weights w [3][NV * VL]. */
TARGET INLINE void NAMED(three)(const float *x, const float *w, int pixels, int step,
                                NAMED(vector) acc[MR][NV]) {
    typedef NAMED(vector) vector;
    // clang-format off
    INPUTS_OF_PIXELS(x);
    UNROLL for (int t = 0; t < 3; t++) {
        vector ww[NV];
        UNROLL for (int v = 0; v < NV; v++) ww[v] = *(const vector *)(w + (t * NV + v) * VL);
        UNROLL for (int v = 0; v < NV; v++)
            UNROLL for (int r = 0; r < pixels; r++) acc[r][v] += ww[v] * INPUT(r, t);
    }
    // clang-format on
}

/* All inputs of some pixels; sum: of the outputs and of their squares, both about b->about. */
TARGET INLINE void NAMED(tile)(const stem_band *b, const float *x, float *y, int pixels, int step,
                               bool has_sums, NAMED(vector) sum[2][NV]) {
    typedef NAMED(vector) vector;
    vector acc[MR][NV];
    // clang-format off
    UNROLL for (int r = 0; r < pixels; r++)
        UNROLL for (int v = 0; v < NV; v++) acc[r][v] = (vector){0};
    const float *at = x;
    for (int i = 0; i < b->threes; i++) {
        const float *from = at;
        at = x + b->offset[i + 1]; /* long before it is used */
        NAMED(three)(from, b->w + 3 * i * NV * VL, pixels, step, acc);
    }
    UNROLL for (int r = 0; r < pixels; r++)
        UNROLL for (int v = 0; v < NV; v++) *(vector *)(y + r * b->pixel + VL * v) = acc[r][v];
    UNROLL for (int v = 0; has_sums && v < NV; v++) {
        vector about = *(const vector *)(b->about + VL * v);
        UNROLL for (int r = 0; r < pixels; r++) {
            vector off = acc[r][v] - about;
            sum[0][v] += off;
            sum[1][v] += off * off;
        }
    }
    // clang-format on
}

TARGET INLINE void NAMED(rows)(const stem_band *band, int step, bool has_sums) {
    const stem_band copy = *band,
                    *b = &copy; /* a copy, since any vector written might alias the original */
    NAMED(vector) sum[2][NV];
    // clang-format off
    UNROLL for (int v = 0; v < NV; v++) sum[0][v] = sum[1][v] = (NAMED(vector)){0};
    for (int r = 0; r < b->rows; r++) {
        const float *x = b->x + r * b->x_row;
        float *y = b->y + r * b->row;
        int i = 0;
#if MR > 4
        for (; i + MR <= b->pixels; i += MR, x += MR * step, y += MR * b->pixel)
            NAMED(tile)(b, x, y, MR, step, has_sums, sum);
#endif
        for (; i + 4 <= b->pixels; i += 4, x += 4 * step, y += 4 * b->pixel)
            NAMED(tile)(b, x, y, 4, step, has_sums, sum);
        for (; i + 2 <= b->pixels; i += 2, x += 2 * step, y += 2 * b->pixel)
            NAMED(tile)(b, x, y, 2, step, has_sums, sum);
        if (i < b->pixels) NAMED(tile)(b, x, y, 1, step, has_sums, sum);
    }
    UNROLL for (int i = 0; has_sums && i < 2; i++)
        UNROLL for (int v = 0; v < NV; v++)
            *(NAMED(vector) *)(b->sums + (i * NV + v) * VL) = sum[i][v];
    // clang-format on
}

TARGET static void NAMED(forward)(const stem_band *b) {
#define ROWS(step)                                                                                 \
    case step:                                                                                     \
        if (b->sums)                                                                               \
            NAMED(rows)(b, step, true);                                                            \
        else                                                                                       \
            NAMED(rows)(b, step, false);                                                           \
        break
    switch (b->step) {
        ROWS(1);
        ROWS(2);
        ROWS(3);
        ROWS(6);
    }
#undef ROWS
}

/* Inputs from 3*i on, and vectors of outputs from v0 on.  One pixel at a time: that is enough
 * loads, and leaves the compiler nothing to shuffle. */
TARGET INLINE void NAMED(pixels)(const stem_band *b, int i, int v0, bool copies, bool asks,
                                 float *dw) {
    typedef NAMED(vector) vector;
    vector acc[LOTS][3][AT_ONCE];
    const size_t step = (size_t)b->step, pixel = b->pixel;
    size_t offset[LOTS];
    float *copy = copies ? b->copy + v0 * VL : NULL;
    const float *ask = b->ask;
    // clang-format off
    UNROLL for (int j = 0; j < LOTS; j++) offset[j] = (size_t)b->offset[i + j];
    UNROLL for (int j = 0; j < LOTS; j++)
        UNROLL for (int t = 0; t < 3; t++)
            UNROLL for (int v = 0; v < AT_ONCE; v++) acc[j][t][v] = (vector){0};
    for (int r = 0; r < b->rows; r++) {
        const float *x = b->x + r * b->x_row, *dy = b->y + r * b->row + v0 * VL;
        const float *end = dy + (size_t)b->pixels * pixel;
        for (; dy < end; x += step, dy += pixel) {
            vector dd[AT_ONCE];
            if (asks) { /* to the L3 cache: does not stall */
                __builtin_prefetch(ask, 0, 1);
                ask += b->ask_pixel;
            }
            UNROLL for (int v = 0; v < AT_ONCE; v++) {
                dd[v] = *(const vector *)(dy + VL * v);
                if (copies) *(vector *)(copy + VL * v) = dd[v];
            }
            if (copies) copy += NV * VL;
            UNROLL for (int j = 0; j < LOTS; j++) {
                THREE_INPUTS(input, x + offset[j]);
                UNROLL for (int t = 0; t < 3; t++)
                    UNROLL for (int v = 0; v < AT_ONCE; v++) acc[j][t][v] += dd[v] * input[t];
            }
        }
    }
    UNROLL for (int j = 0; j < LOTS; j++)
        UNROLL for (int t = 0; t < 3; t++)
            UNROLL for (int v = 0; v < AT_ONCE; v++)
                *(vector *)(dw + ((3 * j + t) * NV + v0 + v) * VL) += acc[j][t][v];
    // clang-format on
}

TARGET static void NAMED(filter)(const stem_band *band, int i, float *dw) {
    const stem_band b = *band; /* a copy, since any vector written might alias the original */
    for (int v0 = 0; v0 < NV; v0 += AT_ONCE)
        if (b.copy)
            NAMED(pixels)(&b, i, v0, true, false, dw);
        else if (b.ask && !v0)
            NAMED(pixels)(&b, i, v0, false, true, dw);
        else
            NAMED(pixels)(&b, i, v0, false, false, dw);
}

static const stem_kernel NAMED(kernel) = {NV * VL, LOTS, NAMED(forward), NAMED(filter)};

#undef THREE_INPUTS
#undef INPUTS_OF_PIXELS
#undef INPUT
#undef TARGET
#undef NAMED
#undef VL
#undef NV
#undef MR
#undef LOTS
#undef AT_ONCE
