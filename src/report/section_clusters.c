/* section_clusters.c: each cluster with its central and its boundary images. */
#include "report/section.h"

#include "report/html.h"

#include <stdlib.h>

/* The row of cluster k in the confusion table; -1 if there is none. */
static int row_of(const report *r, int k) {
    for (int i = 0; r->labeled && i < r->confusion.clusters; i++)
        if (r->confusion.cluster[i] == k) return i;
    return -1;
}

/* The most frequent class of a row, as a column. */
static int main_class(const report *r, int row) {
    const int64_t *count = r->confusion.count + (size_t)row * r->confusion.classes;
    int best = 0;
    for (int j = 1; j < r->confusion.classes; j++)
        if (count[j] > count[best]) best = j;
    return best;
}

/* The shares of the most frequent classes of a row. */
static void write_mix(FILE *f, const report *r, int row) {
    enum { SHOWN = 5 };
    const conr_confusion *m = &r->confusion;
    const int64_t *count = m->count + (size_t)row * m->classes;
    int64_t sum = 0, left;
    bool *used = calloc((size_t)m->classes, sizeof *used);
    for (int j = 0; j < m->classes; j++) sum += count[j];
    left = sum;
    fputs("<ul class=\"mix\">", f);
    for (int shown = 0; used && shown < SHOWN; shown++) {
        int best = -1;
        for (int j = 0; j < m->classes; j++)
            if (!used[j] && count[j] && (best < 0 || count[j] > count[best])) best = j;
        if (best < 0) break;
        used[best] = true;
        left -= count[best];
        fprintf(f, "<li><span class=\"meter\"><span style=\"width:%.1f%%\"></span></span>",
                100.0 * (double)count[best] / (double)sum);
        html_print(f, "<span class=\"what\">%s</span> ", folder_class(r->f, m->class_[best]));
        section_percent(f, (double)count[best] / (double)sum);
        fputs("</li>", f);
    }
    if (left > 0) {
        fputs("<li><span class=\"meter\"></span><span class=\"what\">others</span> ", f);
        section_percent(f, (double)left / (double)sum);
        fputs("</li>", f);
    }
    fputs("</ul>\n", f);
    free(used);
}

/* usual: the class that needs no frame; -1: no frames */
static void write_sheet(FILE *f, const report *r, const char *title, const int64_t *id, int n,
                        int64_t usual) {
    if (n == 0) return;
    fprintf(f, "<figure class=\"sheet\"><figcaption>%s</figcaption><ul class=\"pics\">\n", title);
    for (int i = 0; i < n; i++) {
        bool odd = usual >= 0 && r->f->label[id[i]] >= 0 && r->f->label[id[i]] != usual;
        fputs("<li>", f);
        section_picture(f, r, id[i], odd ? "bad" : "");
        fputs("</li>\n", f);
    }
    fputs("</ul></figure>\n", f);
}

static void write_cluster(FILE *f, const report *r, int k) {
    const report_cluster *c = &r->cluster[k];
    int row = row_of(r, k), best = row >= 0 ? main_class(r, row) : -1;
    int64_t usual = best >= 0 ? r->confusion.class_[best] : -1;
    html_print(f,
               "<article class=\"cluster\" aria-labelledby=\"c%d\"><h3 id=\"c%d\"><span "
               "class=\"dot\" style=\"background:%s\"></span>%s</h3>\n<p class=\"facts\">"
               "%s %s, ",
               k, k, section_color(k), folder_cluster(r->f, k), html_count(c->size),
               section_things(r, c->size == 1));
    section_percent(f, (double)c->size / (double)r->n);
    fputs(" of all", f);
    if (best >= 0) html_print(f, "; mostly <strong>%s</strong>", folder_class(r->f, usual));
    fputs("</p>\n", f);
    if (row >= 0) write_mix(f, r, row);
    write_sheet(f, r, "Most central", c->central, c->n_central, usual);
    write_sheet(f, r, "On the boundary", c->boundary, c->n_boundary, usual);
    fputs("</article>\n", f);
}

void section_write_clusters(FILE *f, const report *r) {
    int left_out = 0;
    html_print(f,
               "<section id=\"clusters\" aria-labelledby=\"h-clusters\">\n"
               "<h2 id=\"h-clusters\">Clusters</h2>\n<p>Central %s are closest to the center of "
               "their cluster; boundary %s are almost as close to another cluster.",
               section_things(r, false), section_things(r, false));
    if (r->labeled)
        fputs(" A red frame marks images outside the most frequent class of their cluster.", f);
    fputs("</p>\n<div class=\"clusters\">\n", f);
    for (int k = 0; k < r->K; k++)
        if (r->cluster[k].n_central)
            write_cluster(f, r, k);
        else
            left_out += r->cluster[k].size > 0;
    fputs("</div>\n", f);
    if (left_out)
        html_print(f,
                   "<p class=\"note\">%d smaller %s not shown here; labels.csv lists all "
                   "images.</p>\n",
                   left_out, left_out == 1 ? "cluster is" : "clusters are");
    fputs("</section>\n", f);
}
