/* choose.h: the number of clusters that neighbors confirm, for rows in one or several forms. */
#ifndef CONR_CHOOSE_H
#define CONR_CHOOSE_H

#include "context/context.h"

enum { CHOICE_FORMS = 3 }; /* at most */

/* What the choice goes by.  Nothing in here is owned. */
typedef struct choice {
    const float *rows[CHOICE_FORMS]; /* [n,d] each: the same rows, scaled in different ways */
    int forms, n, d;
    const int32_t *neighbor; /* [n,near+1]: each row itself, then those that it has edges to */
    int near;
    double weight; /* of the sizes in Q */
    double slack;  /* the smallest K wins whose Q is no more than this below the largest */
} choice;

/* How many of n rows are looked at; *near: neighbors of each. */
int choose_sample(int64_t n, int *near);
/* m of the rows features [n,d] into out [m,d], in an order drawn by the seed. */
void choose_take(const float *features, int64_t n, int64_t d, uint64_t seed, int m, float *out);

/* Fails unless 1 <= low <= high and low <= n. */
int choose_check(int low, int high, int n);
/* As conr_choose_clusters.  low and high have been checked. */
int choose_number(conr *c, const choice *of, const conr_kmeans_options *o, int low, int high,
                  int *chosen, double *score);

#endif
