/* rows.cu: rows of features, and the part of the table that works on them.
 *
 * The files of this part: rows.cu, top_k.cu (choice), losses.cu, boundary.cu,
 * neighbors.cu, kmeans*.cu, views.cu.  The work is small, so what counts is the number of launches
 * and that many SMs take part.  A row belongs to a warp or a block; sums are in double and in a
 * fixed order (warp.cuh), so that the same bits come again.  Nothing is allocated: if a sum over
 * rows needs a place for the parts of the rows, an output that is written later lends it. */
#include "device/cuda/warp.cuh"

static __global__ void normalize(const float *x, int n, int d, float *out, float *norm) {
    int i = warp_row();
    if (i >= n) return;
    x += (size_t)i * d, out += (size_t)i * d;
    double squares = 0;
    for (int j = lane(); j < d; j += WARP) squares += (double)x[j] * x[j];
    double size = sqrt(warp_sum(squares)), by = size > 0 ? 1 / size : 0;
    for (int j = lane(); j < d; j += WARP) out[j] = (float)(x[j] * by);
    if (norm && lane() == 0) norm[i] = (float)size;
}

static int rows_normalize(device *dev, const float *x, int n, int d, float *out, float *norm) {
    if (n < 1) return 0;
    normalize<<<blocks_for(n, ROWS), ROW_BLOCK, 0, stream_of(dev)>>>(x, n, d, out, norm);
    return launched("rows_normalize");
}

static __global__ void normalize_back(const float *out, const float *norm, const float *dout, int n,
                                      int d, float *dx) {
    int i = warp_row();
    if (i >= n) return;
    out += (size_t)i * d, dout += (size_t)i * d, dx += (size_t)i * d;
    double along = 0, by = norm[i] > 0 ? 1.0 / norm[i] : 0;
    for (int j = lane(); j < d; j += WARP) along += (double)out[j] * dout[j];
    along = warp_sum(along);
    for (int j = lane(); j < d; j += WARP) dx[j] = (float)((dout[j] - along * out[j]) * by);
}

static int rows_normalize_back(device *dev, const float *out, const float *norm, const float *dout,
                               int n, int d, float *dx) {
    if (n < 1) return 0;
    normalize_back<<<blocks_for(n, ROWS), ROW_BLOCK, 0, stream_of(dev)>>>(out, norm, dout, n, d,
                                                                          dx);
    return launched("rows_normalize_back");
}

/* width: words per row */
template <typename word>
static __global__ void take(const word *from, size_t width, const int32_t *ids, size_t count,
                            word *to) {
    size_t at = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    if (at < count) to[at] = from[(size_t)ids[at / width] * width + at % width];
}

template <typename word>
static void take_launch(device *dev, const void *from, size_t row_bytes, const int32_t *ids, int n,
                        void *to) {
    size_t width = row_bytes / sizeof(word), count = width * (size_t)n;
    take<<<blocks_for(count, BLOCK), BLOCK, 0, stream_of(dev)>>>((const word *)from, width, ids,
                                                                 count, (word *)to);
}

static int rows_take(device *dev, const void *from, size_t row_bytes, const int32_t *ids, int n,
                     void *to) {
    if (n < 1 || row_bytes == 0) return 0;
    size_t all = (size_t)from | (size_t)to | row_bytes;
    if (all % 16 == 0)
        take_launch<uint4>(dev, from, row_bytes, ids, n, to);
    else if (all % 4 == 0)
        take_launch<uint32_t>(dev, from, row_bytes, ids, n, to);
    else
        take_launch<unsigned char>(dev, from, row_bytes, ids, n, to);
    return launched("rows_take");
}

static __global__ void put_in_ring(const step_values *at, const float *rows, int n, int d,
                                   float *ring, int size) {
    size_t p = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    if (p >= (size_t)n * d) return;
    uint64_t row = ((uint64_t)at->step * (uint64_t)n + p / d) % (uint64_t)size;
    ring[row * d + p % d] = rows[p];
}

static int ring_put(device *dev, const step_values *at, const float *rows, int n, int d,
                    float *ring, int size) {
    if (n < 1 || d < 1) return 0;
    put_in_ring<<<blocks_for((size_t)n * d, BLOCK), BLOCK, 0, stream_of(dev)>>>(at, rows, n, d,
                                                                                ring, size);
    return launched("ring_put");
}

extern "C" void cuda_feature_ops(device_ops *op) {
    op->rows_normalize = rows_normalize;
    op->rows_normalize_back = rows_normalize_back;
    op->rows_take = rows_take;
    op->ring_put = ring_put;
    cuda_choice_ops(op);
    cuda_loss_ops(op);
    cuda_boundary_ops(op);
    cuda_neighbor_ops(op);
    cuda_view_ops(op);
    cuda_kmeans_ops(op);
    cuda_prototype_ops(op);
    cuda_confident_ops(op);
}
