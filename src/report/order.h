/* order.h: orders for qsort and bsearch that several files of the report use. */
#ifndef CONR_REPORT_ORDER_H
#define CONR_REPORT_ORDER_H

#include <stdint.h>

/* An image or cluster with a value to sort by. */
typedef struct ranked {
    double value;
    int64_t id;
} ranked;

static inline int by_id(const void *a, const void *b) { /* int64_t, ascending */
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static inline int by_rank(const void *a, const void *b) { /* ranked, ascending; ties by id */
    const ranked *left = a, *right = b;
    if (left->value != right->value) return left->value < right->value ? -1 : 1;
    return by_id(&left->id, &right->id);
}

#endif
