/* chart.h: charts as inline SVG in a <figure>, with the legend as HTML below. */
#ifndef CONR_CHART_H
#define CONR_CHART_H

#include <stdbool.h>
#include <stdio.h>

/* Points of a curve, appended by series_add; points with a NaN are not drawn. */
typedef struct series {
    double *x, *y;
    int n, room;
} series;

int series_add(series *s, double x, double y);
void series_free(series *s);

typedef struct chart_line {
    const char *name; /* in the legend, unescaped; NULL: not in the legend */
    const series *data;
    const double *error; /* [n] deviations, drawn as error bars; NULL: none */
    int color;           /* 0 to 7; higher ones repeat */
    bool dashed, dots;
} chart_line;

typedef struct chart {
    const char *title, *x_name, *y_name;
    const chart_line *line;
    int n;
    double low, high; /* of y; NaN: from the data */
    double mark;      /* a vertical line at this x; NaN: none */
    const char *mark_text;
} chart;

/* Writes nothing and returns false if no line has two points (with dots: one). */
bool chart_write(FILE *f, const chart *c);

typedef struct chart_bar {
    const char *name;
    double value;
    const char *color; /* "#rrggbb" */
} chart_bar;

/* Vertical bars with their names below; x_name says what those are. */
void chart_bars(FILE *f, const char *title, const char *x_name, const chart_bar *bar, int n);

#endif
