/* match.c: the assignment problem by shortest augmenting paths (Jonker & Volgenant 1987).
 *
 * Rows enter one at a time.  A row that finds its best column taken looks for the cheapest chain of
 * exchanges, as Dijkstra does, with prices of the columns kept such that no reduced cost is
 * negative.  O(rows^2 cols); integers throughout, so the result is exact. */
#include "metrics/match.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdlib.h>

/* A problem with rows <= cols. */
typedef struct matching {
    int rows, cols;
    const int64_t *gain;
    int row_step, col_step; /* of gain: the matrix may be looked at transposed */
    int64_t *row_price;     /* [rows] */
    int64_t *col_price;     /* [cols] */
    int64_t *reach;         /* [cols]: length of the shortest path found so far */
    int *from, *owner,
        *ready;  /* [cols]: the path's row; the row that has the column, or -1; done? */
    int *column; /* [rows]: that the row has */
} matching;

static int64_t cost(const matching *m, int i, int j) {
    return -m->gain[(size_t)i * m->row_step + (size_t)j * m->col_step];
}

/* Looks from row i on; returns the free column where the shortest path ends. */
static int shortest_path(matching *m, int start) {
    int row = start, end = -1;
    int64_t length = 0;
    for (int j = 0; j < m->cols; j++) m->reach[j] = INT64_MAX, m->ready[j] = 0;
    while (end < 0) {
        int64_t least = INT64_MAX;
        int next = -1;
        for (int j = 0; j < m->cols; j++) {
            if (m->ready[j]) continue;
            int64_t to = length + cost(m, row, j) - m->row_price[row] - m->col_price[j];
            if (to < m->reach[j]) m->reach[j] = to, m->from[j] = row;
            /* among equals a free column ends the search at once */
            if (m->reach[j] < least || (m->reach[j] == least && m->owner[j] < 0)) {
                least = m->reach[j];
                next = j;
            }
        }
        m->ready[next] = 1;
        length = least;
        if (m->owner[next] < 0)
            end = next;
        else
            row = m->owner[next];
    }
    /* prices after Dijkstra: whoever was passed on the way pays the difference */
    m->row_price[start] += length;
    for (int j = 0; j < m->cols; j++)
        if (m->ready[j] && j != end) {
            m->row_price[m->owner[j]] += length - m->reach[j];
            m->col_price[j] -= length - m->reach[j];
        }
    return end;
}

/* Every row on the path from `end` back takes the column before it. */
static void augment(matching *m, int start, int end) {
    for (int row = -1, j = end; row != start;) {
        row = m->from[j];
        int before = m->column[row];
        m->owner[j] = row;
        m->column[row] = j;
        j = before;
    }
}

int metrics_match(const int64_t *gain, int rows, int cols, int *match, int64_t *total) {
    bool turned = rows > cols;
    matching m = {.rows = turned ? cols : rows, .cols = turned ? rows : cols, .gain = gain};
    m.row_step = turned ? 1 : cols;
    m.col_step = turned ? cols : 1;
    int rc = 0;
    int64_t *numbers = calloc((size_t)m.rows + 2 * (size_t)m.cols, sizeof *numbers);
    int *ints = calloc(3 * (size_t)m.cols + m.rows, sizeof *ints);
    TRY(numbers && ints ? 0 : fail_memory("matching", 44.0 * m.cols));
    m.row_price = numbers;
    m.col_price = numbers + m.rows;
    m.reach = m.col_price + m.cols;
    m.from = ints, m.owner = ints + m.cols, m.ready = ints + 2 * m.cols;
    m.column = ints + 3 * m.cols;
    for (int j = 0; j < m.cols; j++) m.owner[j] = -1;
    for (int i = 0; i < m.rows; i++) augment(&m, i, shortest_path(&m, i));

    int64_t sum = 0;
    for (int i = 0; i < rows; i++) match[i] = -1;
    for (int j = 0; j < m.cols; j++) {
        if (m.owner[j] < 0) continue;
        sum -= cost(&m, m.owner[j], j);
        if (turned)
            match[j] = m.owner[j];
        else
            match[m.owner[j]] = j;
    }
    if (total) *total = sum;
done:
    free(numbers), free(ints);
    return rc;
}
