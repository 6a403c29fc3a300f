/* chart.h: charts as inline SVG in a <figure>, their legends and numbers as HTML beside them. */
#ifndef CONR_CHART_H
#define CONR_CHART_H

#include <stdbool.h>
#include <stdio.h>

/* Numbers over numbers, grown by series_add; NaN is left out when drawn. */
typedef struct series {
    double *x, *y;
    int n, room;
} series;

int series_add(series *s, double x, double y);
void series_free(series *s);

typedef struct chart_line {
    const char *name; /* in the legend, escaped here; NULL: not there */
    const series *data;
    const double *error; /* [n] deviation, drawn as bars; NULL: none */
    int color;           /* 0 to 7; beyond, they repeat */
    bool dashed, dots;
} chart_line;

typedef struct chart {
    const char *title, *x_name, *y_name;
    const chart_line *line;
    int n;
    double low, high; /* of y; NaN: as the numbers want it */
    double mark;      /* a vertical line at this x; NaN: none */
    const char *mark_text;
} chart;

/* Writes nothing and returns false where no line has two points (or dots and one). */
bool chart_write(FILE *f, const chart *c);

typedef struct chart_bar {
    const char *name;
    double value;
    const char *color; /* "#rrggbb" */
} chart_bar;

/* Upright bars with their names below, which x_name explains. */
void chart_bars(FILE *f, const char *title, const char *x_name, const chart_bar *bar, int n);

#endif
