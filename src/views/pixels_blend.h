/* pixels_blend.h: weighted sums of rows of bytes; included by pixels_resize.c once for floats and
 * once for integers, with NUMBER, WEIGHT and NAME defined.  (No guard: that is its purpose.)
 *
 *     out[i] = (add ? out[i] : 0) + sum over t of w[t] * r[t][i]
 *
 * One loop over all rows of a window, so that the sum stays in registers; `restrict` promises that
 * out is none of the rows. */

#define TERM(t) ((NUMBER)w##t * (WEIGHT)r##t[i])
#define LOOP(sum)                                                                                  \
    for (int i = 0; !add && i < n; i++) out[i] = (float)(sum);                                     \
    for (int i = 0; add && i < n; i++) out[i] += (float)(sum);

static void NAME(2)(byte_row const r[], const WEIGHT w[], bool add, int n, float *restrict out) {
    byte_row r0 = r[0], r1 = r[1];
    WEIGHT w0 = w[0], w1 = w[1];
    LOOP(TERM(0) + TERM(1))
}

static void NAME(4)(byte_row const r[], const WEIGHT w[], bool add, int n, float *restrict out) {
    byte_row r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3];
    WEIGHT w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3];
    LOOP((TERM(0) + TERM(1)) + (TERM(2) + TERM(3)))
}

static void NAME(6)(byte_row const r[], const WEIGHT w[], bool add, int n, float *restrict out) {
    byte_row r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3], r4 = r[4], r5 = r[5];
    WEIGHT w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3], w4 = w[4], w5 = w[5];
    LOOP((TERM(0) + TERM(1) + TERM(2)) + (TERM(3) + TERM(4) + TERM(5)))
}

static void NAME(8)(byte_row const r[], const WEIGHT w[], bool add, int n, float *restrict out) {
    byte_row r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3], r4 = r[4], r5 = r[5], r6 = r[6], r7 = r[7];
    WEIGHT w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3], w4 = w[4], w5 = w[5], w6 = w[6], w7 = w[7];
    LOOP((TERM(0) + TERM(1) + TERM(2) + TERM(3)) + (TERM(4) + TERM(5) + TERM(6) + TERM(7)))
}

/* Output y of the taps, with weights w[0 .. most-1]; eight rows at a time. */
static void NAME(rows)(const taps *t, const WEIGHT *w, byte_row box, size_t stride, int n, int y,
                       float *out) {
    byte_row first = box + (size_t)t->first[y] * stride;
    for (int k = 0; k < t->most; k += 8) {
        int left = t->most - k;
        byte_row r[8];
        WEIGHT part[8];
        for (int i = 0; i < 8; i++) { /* in place of a missing row any, with weight 0 */
            r[i] = first + (i < left ? (size_t)(k + i) * stride : 0);
            part[i] = i < left ? w[k + i] : 0;
        }
        if (left <= 2)
            NAME(2)(r, part, k > 0, n, out);
        else if (left <= 4)
            NAME(4)(r, part, k > 0, n, out);
        else if (left <= 6)
            NAME(6)(r, part, k > 0, n, out);
        else
            NAME(8)(r, part, k > 0, n, out);
    }
}

#undef TERM
#undef LOOP
#undef NUMBER
#undef WEIGHT
#undef NAME
