/* stem_data_kernel.h: the products of stem_data.c, included there once per instruction set (hence
 * no include guard), with
 *   TARGET          an attribute
 *   NAMED           names with an ending of their own
 *   VL              floats in a vector
 *   MOST            largest number of vectors in a panel
 *   TILE(vectors)   pixels of a tile of this many vectors, at most 8
 *   LANES           1 if single floats are taken from registers
 *
 * Vectors of weights are multiplied by single floats of dy.  NEON loads four of them at once and
 * takes them from the register lane by lane; other machines broadcast them from memory.  `pixels`
 * and `vectors` become constants when these functions are inlined. */

/* acc += products of one output: one float of each pixel and its weights w [vectors * VL]. */
TARGET INLINE void NAMED(one_output)(const float *dy, size_t co, const float *w, int pixels,
                                     int vectors, NAMED(vector) acc[8][MOST]) {
    typedef NAMED(vector) vector;
    // clang-format off
    UNROLL for (int v = 0; v < vectors; v++) {
        vector ww = *(const vector *)(w + VL * v);
        UNROLL for (int r = 0; r < pixels; r++) acc[r][v] += ww * dy[r * co];
    }
    // clang-format on
}

#if LANES
/* The same for four outputs; w: [4][vectors * VL]. */
TARGET INLINE void NAMED(four_outputs)(const float *dy, size_t co, const float *w, int pixels,
                                       int vectors, NAMED(vector) acc[8][MOST]) {
    typedef NAMED(vector) vector;
    vector d[8];
    // clang-format off
    UNROLL for (int r = 0; r < pixels; r++) d[r] = *(const vector *)(dy + r * co);
    UNROLL for (int o = 0; o < 4; o++)
        UNROLL for (int v = 0; v < vectors; v++) {
            vector ww = *(const vector *)(w + (o * vectors + v) * VL);
            UNROLL for (int r = 0; r < pixels; r++) acc[r][v] += ww * d[r][o];
        }
    // clang-format on
}
#endif

/* A panel of the products of some pixels, from all of their outputs. */
TARGET INLINE void NAMED(products_tile)(const stem_rows *b, const float *dy, float *to, int pixels,
                                        int vectors) {
    typedef NAMED(vector) vector;
    const size_t co = (size_t)b->co;
    const float *w = b->w;
    vector acc[8][MOST];
    int o = 0;
    // clang-format off
    UNROLL for (int r = 0; r < pixels; r++)
        UNROLL for (int v = 0; v < vectors; v++) acc[r][v] = (vector){0};
#if LANES
    for (; o + 4 <= b->co; o += 4, w += 4 * vectors * VL) {
        __builtin_prefetch(dy + 4 * o + AHEAD);
        NAMED(four_outputs)(dy + o, co, w, pixels, vectors, acc);
    }
#endif
    for (; o < b->co; o++, w += vectors * VL)
        NAMED(one_output)(dy + o, co, w, pixels, vectors, acc);
    UNROLL for (int r = 0; r < pixels; r++)
        UNROLL for (int v = 0; v < vectors; v++) *(vector *)(to + r * b->pixel + VL * v) = acc[r][v];
    // clang-format on
}

TARGET INLINE void NAMED(products_rows)(const stem_rows *rows, int vectors) {
    const stem_rows copy = *rows,
                    *b = &copy; /* a copy, since any vector written might alias the original */
    const float *dy = b->dy;
    for (int r = 0; r < b->rows; r++) {
        float *to = b->to + r * b->row;
        int i = 0;
#define TILES(n)                                                                                   \
    for (; i + (n) <= b->pixels; i += (n), dy += (n) * (size_t)b->co, to += (n)*b->pixel)          \
    NAMED(products_tile)(b, dy, to, n, vectors)
        TILES(TILE(vectors));
        if (TILE(vectors) > 4) TILES(4);
        TILES(2);
        TILES(1);
#undef TILES
    }
}

TARGET static void NAMED(products)(const stem_rows *b, int vectors) {
    switch (vectors) {
    case 1: NAMED(products_rows)(b, 1); break;
    case 2: NAMED(products_rows)(b, 2); break;
    case 3: NAMED(products_rows)(b, 3); break;
#if MOST > 3
    case 4: NAMED(products_rows)(b, 4); break;
    case 5: NAMED(products_rows)(b, 5); break;
    case 6: NAMED(products_rows)(b, 6); break;
    case 7: NAMED(products_rows)(b, 7); break;
#endif
    }
}

static const products_kernel NAMED(kernel) = {VL, MOST, NAMED(products)};

#undef TARGET
#undef NAMED
#undef VL
#undef MOST
#undef TILE
#undef LANES
