/* assignment.c: shortest augmenting paths (Jonker & Volgenant 1987).
 *
 * Rows are assigned one at a time.  A row whose best column is taken looks for the cheapest chain
 * of exchanges with Dijkstra's algorithm.  Potentials of rows and columns (the dual variables) keep
 * all reduced costs, cost - row potential - column potential, at or above zero.  O(rows^2 cols);
 * integers throughout, so the result is exact. */
#include "metrics/assignment.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdlib.h>

/* A problem with rows <= cols. */
typedef struct problem {
    int rows, cols;
    const int64_t *gain;
    int row_step, col_step; /* strides of gain, which may be read transposed */
    int64_t *row_potential; /* [rows] */
    int64_t *col_potential; /* [cols] */
    int64_t *reach;         /* [cols]: length of the shortest path found so far */
    int *from;              /* [cols]: the row that this path comes from */
    int *owner;             /* [cols]: the row assigned to the column, or -1 */
    int *ready;             /* [cols]: 1 once its shortest path is final */
    int *column;            /* [rows]: the column assigned to the row */
} problem;

static int64_t cost(const problem *m, int i, int j) {
    return -m->gain[(size_t)i * m->row_step + (size_t)j * m->col_step];
}

/* Searches from row `start`; returns the free column where the shortest path ends. */
static int shortest_path(problem *m, int start) {
    int row = start, end = -1;
    int64_t length = 0;
    for (int j = 0; j < m->cols; j++) m->reach[j] = INT64_MAX, m->ready[j] = 0;
    while (end < 0) {
        int64_t least = INT64_MAX;
        int next = -1;
        for (int j = 0; j < m->cols; j++) {
            if (m->ready[j]) continue;
            int64_t to = length + cost(m, row, j) - m->row_potential[row] - m->col_potential[j];
            if (to < m->reach[j]) m->reach[j] = to, m->from[j] = row;
            /* among ties prefer a free column: it ends the search */
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
    /* update the potentials of all rows and columns that the search has settled */
    m->row_potential[start] += length;
    for (int j = 0; j < m->cols; j++)
        if (m->ready[j] && j != end) {
            m->row_potential[m->owner[j]] += length - m->reach[j];
            m->col_potential[j] -= length - m->reach[j];
        }
    return end;
}

/* Back along the path from `end`: each row takes its column on the path and frees its old one. */
static void augment(problem *m, int start, int end) {
    for (int row = -1, j = end; row != start;) {
        row = m->from[j];
        int before = m->column[row];
        m->owner[j] = row;
        m->column[row] = j;
        j = before;
    }
}

int assignment_solve(const int64_t *gain, int rows, int cols, int *match, int64_t *total) {
    bool transposed = rows > cols;
    problem m = {.rows = transposed ? cols : rows, .cols = transposed ? rows : cols, .gain = gain};
    m.row_step = transposed ? 1 : cols;
    m.col_step = transposed ? cols : 1;
    int rc = 0;
    int64_t *numbers = calloc((size_t)m.rows + 2 * (size_t)m.cols, sizeof *numbers);
    int *ints = calloc(3 * (size_t)m.cols + m.rows, sizeof *ints);
    TRY(numbers && ints ? 0 : fail_memory("assignment", 44.0 * m.cols));
    m.row_potential = numbers;
    m.col_potential = numbers + m.rows;
    m.reach = m.col_potential + m.cols;
    m.from = ints, m.owner = ints + m.cols, m.ready = ints + 2 * m.cols;
    m.column = ints + 3 * m.cols;
    for (int j = 0; j < m.cols; j++) m.owner[j] = -1;
    for (int i = 0; i < m.rows; i++) augment(&m, i, shortest_path(&m, i));

    int64_t sum = 0;
    for (int i = 0; i < rows; i++) match[i] = -1;
    for (int j = 0; j < m.cols; j++) {
        if (m.owner[j] < 0) continue;
        sum -= cost(&m, m.owner[j], j);
        if (transposed)
            match[j] = m.owner[j];
        else
            match[m.owner[j]] = j;
    }
    if (total) *total = sum;
done:
    free(numbers), free(ints);
    return rc;
}
