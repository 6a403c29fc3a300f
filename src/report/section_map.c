/* section_map.c: the map: as a still picture, and as data for page.js, which draws it on a canvas
 * where it can be moved, zoomed and clicked. */
#include "report/section.h"

#include "base/memory.h"
#include "base/status.h"
#include "report/html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PICTURE = 800, MARGIN = 16 };

/* Draws a disk, its edge antialiased by coverage. */
static void disk(unsigned char *rgba, double x, double y, double radius, const unsigned char *rgb) {
    for (int v = (int)(y - radius - 1); v <= (int)(y + radius + 1); v++)
        for (int u = (int)(x - radius - 1); u <= (int)(x + radius + 1); u++) {
            if (u < 0 || v < 0 || u >= PICTURE || v >= PICTURE) continue;
            double cover = radius + 0.5 - hypot(u + 0.5 - x, v + 0.5 - y);
            if (cover <= 0) continue;
            unsigned char *p = rgba + ((size_t)v * PICTURE + u) * 4;
            int alpha = cover >= 1 ? 255 : (int)(255 * cover);
            memcpy(p, rgb, 3);
            if (alpha > p[3]) p[3] = (unsigned char)alpha;
        }
}

static int write_picture(FILE *f, const report *r) {
    unsigned char *rgba = calloc((size_t)PICTURE * PICTURE, 4), rgb[3];
    webp out = {0};
    int rc = 0;
    if (!rgba) return fail_memory("map", 4.0 * PICTURE * PICTURE);
    double half = PICTURE / 2.0 - MARGIN;
    for (int i = 0; i < r->n_points; i++) {
        int64_t id = r->point[i];
        section_rgb(r->f->cluster[id], rgb);
        disk(rgba, PICTURE / 2.0 + half * r->xy[2 * i], PICTURE / 2.0 + half * r->xy[2 * i + 1],
             r->kept[id] ? 2.2 : 1.0, rgb);
    }
    TRY(webp_encode(rgba, PICTURE, PICTURE, 4, 101, &out));
    html_print(f,
               "<img id=\"map-still\" width=\"%d\" height=\"%d\" alt=\"Map of %s %s, colored "
               "by cluster: those with similar features are close together\" "
               "src=\"data:image/webp;base64,",
               PICTURE, PICTURE, html_count(r->n_points), section_things(r, r->n_points == 1));
    html_base64(f, out.bytes, out.n);
    fputs("\">\n", f);
done:
    free(rgba);
    webp_free(&out);
    return rc;
}

/* A field of the JSON: 2-byte integers in base64, little-endian as on all machines we support. */
static int write_array(FILE *f, const char *key, const uint16_t *value, size_t n) {
    fprintf(f, "\"%s\":\"", key);
    html_base64(f, value, n * sizeof *value);
    fputs("\",\n", f);
    return 0;
}

/* Without the folders that all names share. */
static int write_names(FILE *f, const report *r) {
    enum { LONGEST = 60 };
    const char **all = memory_new("map", (size_t)r->n_points, sizeof *all);
    if (!all) return CONR_ENOMEM;
    for (int i = 0; i < r->n_points; i++) all[i] = r->f->image[r->point[i]];
    size_t shared = folder_shared(all, r->n_points);
    fputs("\"names\":[", f);
    for (int i = 0; i < r->n_points; i++) {
        const char *name = all[i] + shared;
        size_t length = strlen(name);
        if (i) fputc(',', f);
        html_json(f, length > LONGEST ? name + length - LONGEST : name);
    }
    fputs("],\n", f);
    free(all);
    return 0;
}

static int write_numbers(FILE *f, const report *r) {
    size_t n = (size_t)r->n_points, lists = n * REPORT_NEAR;
    uint16_t *value = memory_new("map", lists > 2 * n ? lists : 2 * n, sizeof *value);
    if (!value) return CONR_ENOMEM;
    for (size_t i = 0; i < 2 * n; i++)
        value[i] = (uint16_t)lroundf((r->xy[i] * 0.5f + 0.5f) * 65535);
    write_array(f, "xy", value, 2 * n);
    for (size_t i = 0; i < n; i++) value[i] = (uint16_t)r->f->cluster[r->point[i]];
    write_array(f, "cluster", value, n);
    if (r->labeled) {
        for (size_t i = 0; i < n; i++)
            value[i] = (uint16_t)r->f->label[r->point[i]]; /* -1: 65535 */
        write_array(f, "label", value, n);
    }
    for (size_t i = 0; i < n; i++)
        value[i] =
            (uint16_t)(r->kept[r->point[i]] | (int)(r->f->boundary[r->point[i]] * 1000) << 1);
    write_array(f, "edge", value, n);
    for (int kind = 0; kind < 2 && r->map_near[0]; kind++) {
        for (size_t i = 0; i < lists; i++) {
            size_t row = i / REPORT_NEAR, at = 1 + i % REPORT_NEAR;
            value[i] = (uint16_t)r->map_near[kind][row * (1 + REPORT_NEAR) + at];
        }
        write_array(f, kind ? "conaff" : "euclidean", value, lists);
    }
    free(value);
    return 0;
}

static int write_data(FILE *f, const report *r) {
    int rc = 0, classes = 0;
    fputs("<script type=\"application/json\" id=\"map-data\">{", f);
    TRY(write_numbers(f, r));
    TRY(write_names(f, r));
    for (int64_t i = 0; r->labeled && i < r->n; i++)
        if (r->f->label[i] >= classes && r->f->label[i] < 65535) classes = (int)r->f->label[i] + 1;
    fputs("\"classes\":[", f);
    for (int j = 0; j < classes; j++) {
        if (j) fputc(',', f);
        html_json(f, folder_class(r->f, j));
    }
    fputs("],\n\"clusters\":[", f);
    for (int k = 0; k < r->K; k++) {
        if (k) fputc(',', f);
        html_json(f, folder_cluster(r->f, k));
    }
    fputs("],\n\"colors\":[", f);
    int colors = classes > r->K ? classes : r->K;
    for (int k = 0; k < colors; k++) fprintf(f, "%s\"%s\"", k ? "," : "", section_color(k));
    fprintf(
        f, "],\n\"n\":%d,\"K\":%d,\"near\":%d,\"side\":%d,\"columns\":%d,\"sheets\":%d}</script>\n",
        r->n_points, r->K, REPORT_NEAR, r->sheet_side, SHEET_COLUMNS, r->n_sheets);
    for (int i = 0; i < r->n_sheets; i++) { /* decoded when the map scrolls into view */
        fprintf(f, "<script type=\"text/plain\" id=\"sheet%d\">", i);
        html_base64(f, r->sheet[i].bytes, r->sheet[i].n);
        fputs("</script>\n", f);
    }
done:
    return rc;
}

int section_write_map(FILE *f, const report *r) {
    int rc = 0;
    fputs("<section id=\"map\" aria-labelledby=\"h-map\">\n<h2 id=\"h-map\">Map</h2>\n<p>", f);
    if (r->n_points < r->n)
        html_print(f, "%s of the %s, chosen at random", html_count(r->n_points), html_count(r->n));
    else
        html_print(f, "All %s %s", html_count(r->n), section_things(r, false));
    fputs(", placed by t-SNE so that those with similar features are close together. Small dots "
          "are on "
          "a boundary. Distances between groups mean little.<span class=\"js\"> Drag to move, "
          "scroll or pinch to zoom, hover over a dot to see its image",
          f);
    fputs(r->map_near[0] ? ", click it to see its neighbors" : "", f);
    fputs(".</span></p>\n<div id=\"map-tools\" class=\"tools\" hidden>\n", f);
    if (r->labeled)
        fputs("<label>Color by <select id=\"map-color\"><option value=\"cluster\">cluster</option>"
              "<option value=\"label\">label</option></select></label>\n",
              f);
    fputs(
        "<label>Boundary images <select id=\"map-edge\"><option value=\"small\">small</option>"
        "<option value=\"none\">hidden</option><option value=\"only\">only</option></select>"
        "</label>\n<span class=\"buttons\"><button type=\"button\" id=\"map-in\" aria-label=\"Zoom "
        "in\">+</button><button type=\"button\" id=\"map-out\" aria-label=\"Zoom out\">&minus;"
        "</button><button type=\"button\" id=\"map-all\">Whole map</button></span></div>\n"
        "<div id=\"map-box\">\n",
        f);
    TRY(write_picture(f, r));
    fputs("<div id=\"map-tip\" hidden></div></div>\n<ul id=\"map-legend\" class=\"legend\"></ul>\n"
          "<div id=\"map-near\" aria-live=\"polite\"></div>\n",
          f);
    TRY(write_data(f, r));
    fputs("</section>\n", f);
done:
    return rc;
}
