/* chart.c: see chart.h.  Colors and fonts are classes of page.css, so charts follow the light or
 * dark theme. */
#include "report/chart.h"

#include "base/status.h"
#include "report/html.h"

#include <math.h>
#include <stdlib.h>

enum {
    WIDTH = 400,
    HEIGHT = 250,
    LEFT = 46,
    RIGHT = 10,
    TOP = 12,
    BOTTOM = 38,
    MOST_POINTS = 400, /* per line; more than a screen can show are averaged */
    MOST_DOTS = 120,
    COLORS = 8
};

int series_add(series *s, double x, double y) {
    if (s->n == s->room) {
        int room = s->room ? 2 * s->room : 64;
        double *nx = realloc(s->x, (size_t)room * sizeof *nx);
        if (nx) s->x = nx;
        double *ny = realloc(s->y, (size_t)room * sizeof *ny);
        if (ny) s->y = ny;
        if (!nx || !ny) return fail_memory("chart", 16.0 * room);
        s->room = room;
    }
    s->x[s->n] = x;
    s->y[s->n++] = y;
    return 0;
}

void series_free(series *s) {
    free(s->x), free(s->y);
    *s = (series){0};
}

/* ---- scales ---------------------------------------------------------------------------------- */

typedef struct scale {
    double low, high, step;
} scale;

/* Round limits and steps: 1, 2 or 5 times a power of ten. */
static scale scale_for(double low, double high, int steps, bool whole) {
    if (!(high > low)) {
        double room = fabs(low) > 0 ? fabs(low) * 0.1 : 1;
        low -= room, high += room;
    }
    double raw = (high - low) / steps, power = pow(10, floor(log10(raw))), times = raw / power;
    double step = power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
    if (whole && step < 1) step = 1;
    return (scale){floor(low / step + 1e-9) * step, ceil(high / step - 1e-9) * step, step};
}

static double place_x(const scale *s, double x) {
    return LEFT + (x - s->low) / (s->high - s->low) * (WIDTH - LEFT - RIGHT);
}

static double place_y(const scale *s, double y) {
    return HEIGHT - BOTTOM - (y - s->low) / (s->high - s->low) * (HEIGHT - TOP - BOTTOM);
}

static void write_number(FILE *f, double v, double step) {
    if (fabs(v) < step / 1e6) v = 0;
    int digits = (int)ceil(-log10(step) - 1e-9);
    if (digits > 4)
        fprintf(f, "%.1e", v);
    else
        fprintf(f, "%.*f", digits > 0 ? digits : 0, v);
}

static void write_axes(FILE *f, const chart *c, const scale *sx, const scale *sy) {
    fputs("<g class=\"grid\">", f);
    for (double y = sy->low; y <= sy->high + sy->step / 2; y += sy->step)
        fprintf(f, "<path d=\"M%d %.1fH%d\"/>", LEFT, place_y(sy, y), WIDTH - RIGHT);
    fputs("</g><g class=\"ticks\">", f);
    for (double y = sy->low; y <= sy->high + sy->step / 2; y += sy->step) {
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 6, place_y(sy, y) + 4);
        write_number(f, y, sy->step);
        fputs("</text>", f);
    }
    for (double x = ceil(sx->low / sx->step - 1e-9) * sx->step; x <= sx->high + sx->step / 1e6;
         x += sx->step) {
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", place_x(sx, x),
                HEIGHT - BOTTOM + 16);
        write_number(f, x, sx->step);
        fputs("</text>", f);
    }
    html_print(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text></g>\n",
               (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, c->x_name);
    if (isfinite(c->mark) && c->mark > sx->low && c->mark < sx->high) {
        double x = place_x(sx, c->mark);
        bool right = x > WIDTH * 0.7;
        fprintf(f, "<path class=\"mark\" d=\"M%.1f %dV%d\"/>", x, TOP, HEIGHT - BOTTOM);
        html_print(f, "<text class=\"marked\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%s</text>\n",
                   x + (right ? -5 : 5), TOP + 9, right ? "end" : "start", c->mark_text);
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void write_line(FILE *f, const chart_line *l, const scale *sx, const scale *sy) {
    const series *s = l->data;
    int color = l->color % COLORS, each = (s->n + MOST_POINTS - 1) / MOST_POINTS;
    fprintf(f, "<path class=\"line s%d%s\" d=\"", color, l->dashed ? " dashed" : "");
    char command = 'M';
    for (int i = 0; i < s->n; i += each) {
        double x = 0, y = 0;
        int n = 0;
        for (int j = i; j < i + each && j < s->n; j++)
            if (isfinite(s->y[j])) x += s->x[j], y += s->y[j], n++;
        if (n) fprintf(f, "%c%.1f %.1f", command, place_x(sx, x / n), place_y(sy, y / n));
        if (n) command = 'L';
    }
    fputs("\"/>", f);
    for (int i = 0; l->error && i < s->n; i++)
        if (isfinite(s->y[i]) && l->error[i] > 0)
            fprintf(f, "<path class=\"line thin s%d\" d=\"M%.1f %.1fV%.1f\"/>", color,
                    place_x(sx, s->x[i]), place_y(sy, fmax(sy->low, s->y[i] - l->error[i])),
                    place_y(sy, fmin(sy->high, s->y[i] + l->error[i])));
    for (int i = 0; l->dots && s->n <= MOST_DOTS && i < s->n; i++)
        if (isfinite(s->y[i]))
            fprintf(f,
                    "<circle class=\"f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>%.4g: %.4f"
                    "</title></circle>",
                    color, place_x(sx, s->x[i]), place_y(sy, s->y[i]), s->x[i], s->y[i]);
    fputc('\n', f);
}

static void write_legend(FILE *f, const chart *c) {
    if (c->n < 2) return;
    fputs("<ul class=\"legend\">", f);
    for (int i = 0; i < c->n; i++)
        if (c->line[i].data->n && c->line[i].name)
            html_print(f, "<li><span class=\"key b%d%s\"></span>%s</li>", c->line[i].color % COLORS,
                       c->line[i].dashed ? " dashed" : "", c->line[i].name);
    fputs("</ul>", f);
}

bool chart_write(FILE *f, const chart *c) {
    double x[2] = {INFINITY, -INFINITY}, y[2] = {INFINITY, -INFINITY};
    int drawn = 0;
    bool whole = true;
    for (int i = 0; i < c->n; i++) {
        const series *s = c->line[i].data;
        drawn += s->n >= (c->line[i].dots ? 1 : 2);
        for (int j = 0; j < s->n; j++) {
            if (!isfinite(s->y[j])) continue;
            double e = c->line[i].error && isfinite(c->line[i].error[j]) ? c->line[i].error[j] : 0;
            x[0] = fmin(x[0], s->x[j]), x[1] = fmax(x[1], s->x[j]);
            y[0] = fmin(y[0], s->y[j] - e), y[1] = fmax(y[1], s->y[j] + e);
            whole = whole && s->x[j] == floor(s->x[j]);
        }
    }
    if (drawn == 0 || !isfinite(x[0])) return false;
    if (isfinite(c->low)) y[0] = c->low;
    if (isfinite(c->high)) y[1] = c->high;
    scale sx = scale_for(x[0], x[1], 6, whole), sy = scale_for(y[0], y[1], 5, false);
    if (x[1] > x[0]) sx.low = x[0], sx.high = x[1]; /* lines span the full width */
    html_print(f,
               "<figure class=\"chart\"><figcaption>%s</figcaption>\n<svg viewBox=\"0 0 %d %d\" "
               "role=\"img\" aria-label=\"%s: %s over %s, from %.3g to %.3g\">\n",
               c->title, WIDTH, HEIGHT, c->title, c->y_name, c->x_name, y[0], y[1]);
    write_axes(f, c, &sx, &sy);
    for (int i = 0; i < c->n; i++)
        if (c->line[i].data->n) write_line(f, &c->line[i], &sx, &sy);
    fputs("</svg>\n", f);
    write_legend(f, c);
    fputs("</figure>\n", f);
    return true;
}

void chart_bars(FILE *f, const char *title, const char *x_name, const chart_bar *bar, int n) {
    double most = 0;
    for (int i = 0; i < n; i++) most = fmax(most, bar[i].value);
    scale sx = {0, n > 0 ? n : 1, 1}, sy = scale_for(0, most, 4, true);
    double wide = (double)(WIDTH - LEFT - RIGHT) / (n > 0 ? n : 1);
    int every = (n + 19) / 20; /* label only as many as fit */
    html_print(f,
               "<figure class=\"chart\"><figcaption>%s</figcaption>\n<svg viewBox=\"0 0 %d %d\" "
               "role=\"img\" aria-label=\"%s: %d bars, the highest %.0f\">\n<g class=\"grid\">",
               title, WIDTH, HEIGHT, title, n, most);
    for (double y = 0; y <= sy.high + sy.step / 2; y += sy.step)
        fprintf(f, "<path d=\"M%d %.1fH%d\"/>", LEFT, place_y(&sy, y), WIDTH - RIGHT);
    fputs("</g><g class=\"ticks\">", f);
    for (double y = 0; y <= sy.high + sy.step / 2; y += sy.step)
        html_print(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>", LEFT - 6,
                   place_y(&sy, y) + 4, html_count((int64_t)y));
    for (int i = 0; i < n; i += every)
        html_print(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>",
                   place_x(&sx, i + 0.5), HEIGHT - BOTTOM + 16, bar[i].name);
    html_print(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text></g>\n",
               (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, x_name);
    for (int i = 0; i < n; i++) {
        double top = place_y(&sy, bar[i].value);
        html_print(f,
                   "<rect fill=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\">"
                   "<title>%s: %s</title></rect>",
                   bar[i].color, place_x(&sx, i) + wide * 0.12, top, wide * 0.76,
                   HEIGHT - BOTTOM - top, bar[i].name, html_count((int64_t)bar[i].value));
    }
    fputs("</svg></figure>\n", f);
}
