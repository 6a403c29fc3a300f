/* graph.c: clusters of the sparse graph of contextual affinities. */
#include "base/status.h"
#include "conr.h"

conr_graph_options conr_graph_defaults(void) {
    return (conr_graph_options){.neighbors = conr_neighbors_defaults(), .seed = 1};
}

int conr_graph(conr *c, const float *features, int64_t n, int64_t d, const conr_graph_options *o,
               int32_t *labels) {
    (void)c, (void)features, (void)n, (void)d, (void)o, (void)labels;
    return fail(CONR_EINVAL, "graph: not built yet; use k-means");
}

int conr_graph_assign(conr *c, const float *features, const int32_t *labels, int64_t n, int64_t d,
                      int K, const float *query, int64_t m, int32_t *out) {
    (void)c, (void)features, (void)n, (void)d, (void)labels, (void)K, (void)query, (void)m;
    (void)out;
    return fail(CONR_EINVAL, "graph: not built yet; use k-means");
}
