/* gemm_kernel.h: the body of the micro-kernel, included by gemm.c once per instruction set and form
 * (hence no include guard), with
 *   KERNEL      the name of the function
 *   TARGET      its attribute
 *   VL          floats in a vector
 *   MR          rows of the tile
 *   NV          vectors in a row of the tile
 *   QUADS       0 or 1, see below
 *   PANELS      optional: the name of the function for several panels of a; many sums are short
 *   KERNEL_ONE  optional: the name of the function for one vector
 *
 * MR x NV accumulators stay in registers; a step loads NV vectors of b and MR floats of a for
 * MR * NV multiply-adds.  If a vector holds four floats (NEON), those of a are loaded four at a
 * time and taken from the register lane by lane, which saves the broadcasts.
 *
 * QUADS: a holds four adjacent elements of one row, a[(l/4)*4*MR + 4*r + l%4], which is what
 * packing NHWC pixels gives without a transposition; k is a multiple of 4. */
TARGET INLINE void KERNEL(int k, const float *restrict a, const float *restrict b,
                          float *restrict c, int ldc, bool add) {
    typedef float vector VECTOR(VL);
    vector sum[MR][NV];
    // clang-format off
    UNROLL for (int r = 0; r < MR; r++)
        UNROLL for (int v = 0; v < NV; v++) sum[r][v] = (vector){0};
    if (add) UNROLL for (int r = 0; r < MR; r++) __builtin_prefetch(c + (size_t)r * ldc, 1);
#if QUADS
    for (int l = 0; l < k; l += 4, a += 4 * MR) {
#if VL == 4
        vector aa[MR];
        UNROLL for (int r = 0; r < MR; r++) aa[r] = *(const vector *)(a + 4 * r);
#define A_AT(r) aa[r][q]
#else
#define A_AT(r) a[4 * (r) + q]
#endif
        UNROLL for (int q = 0; q < 4; q++, b += NV * VL) {
            vector bb[NV];
            UNROLL for (int v = 0; v < NV; v++) bb[v] = *(const vector *)(b + VL * v);
            UNROLL for (int r = 0; r < MR; r++)
                UNROLL for (int v = 0; v < NV; v++) sum[r][v] += bb[v] * A_AT(r);
        }
#undef A_AT
    }
#else
    for (int l = 0; l < k; l++, a += MR, b += NV * VL) {
        vector bb[NV];
        UNROLL for (int v = 0; v < NV; v++) bb[v] = *(const vector *)(b + VL * v);
#if VL == 4
        vector aa[MR / 4];
        UNROLL for (int r = 0; r < MR / 4; r++) aa[r] = *(const vector *)(a + 4 * r);
#define A_AT(r) aa[(r) / 4][(r) % 4]
#else
#define A_AT(r) a[r]
#endif
        UNROLL for (int r = 0; r < MR; r++)
            UNROLL for (int v = 0; v < NV; v++) sum[r][v] += bb[v] * A_AT(r);
#undef A_AT
    }
#endif
    UNROLL for (int r = 0; r < MR; r++)
        UNROLL for (int v = 0; v < NV; v++) {
            vector *to = (vector *)(c + (size_t)r * ldc + VL * v);
            if (add) sum[r][v] += *to;
            *to = sum[r][v];
        }
    // clang-format on
}

#ifdef PANELS
TARGET static void PANELS(int k, const float *a, const float *b, float *c, int ldc, bool add,
                          int panels, size_t next) {
    for (int i = 0; i < panels; i++, a += next, c += (size_t)MR * ldc) KERNEL(k, a, b, c, ldc, add);
}
#undef PANELS
#endif

#ifdef KERNEL_ONE
/* One vector against a panel.  Four sums per lane: a single one would wait for itself. */
TARGET static void KERNEL_ONE(int k, const float *restrict x, const float *restrict b,
                              float *restrict c) {
    typedef float vector VECTOR(VL);
    vector sum[4][NV];
    int l = 0;
    // clang-format off
    UNROLL for (int u = 0; u < 4; u++)
        UNROLL for (int v = 0; v < NV; v++) sum[u][v] = (vector){0};
    for (; l + 4 <= k; l += 4, b += 4 * NV * VL)
        UNROLL for (int u = 0; u < 4; u++)
            UNROLL for (int v = 0; v < NV; v++)
                sum[u][v] += *(const vector *)(b + VL * (u * NV + v)) * x[l + u];
    for (; l < k; l++, b += NV * VL)
        UNROLL for (int v = 0; v < NV; v++) sum[0][v] += *(const vector *)(b + VL * v) * x[l];
    UNROLL for (int v = 0; v < NV; v++)
        *(vector *)(c + VL * v) = (sum[0][v] + sum[1][v]) + (sum[2][v] + sum[3][v]);
    // clang-format on
}
#undef KERNEL_ONE
#endif
#undef KERNEL
#undef TARGET
#undef VL
#undef MR
#undef NV
#undef QUADS
