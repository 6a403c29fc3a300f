/* sections.c: the parts of a run's report, from top to bottom, but for the map. */
#include "report/report.h"

#include "report/html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what parts share ------------------------------------------------------------------------ */

/* Colors that are told apart on white and on near black; beyond them, hues a golden angle apart. */
void report_rgb(int i, unsigned char rgb[3]) {
    static const unsigned char first[][3] = {
        {0x2f, 0x7d, 0xd1}, {0xe0, 0x7b, 0x1a}, {0x2c, 0x9a, 0x4b}, {0xd6, 0x45, 0x50},
        {0x8f, 0x62, 0xc8}, {0x9a, 0x6b, 0x4f}, {0xd9, 0x5f, 0xa8}, {0x7d, 0x84, 0x8c},
        {0xa3, 0x9a, 0x1c}, {0x17, 0x9f, 0xae}, {0x5b, 0x6f, 0xe6}, {0xb8, 0x4d, 0x1e}};
    enum { FIRST = sizeof first / sizeof *first };
    if (i < FIRST) {
        memcpy(rgb, first[i], 3);
        return;
    }
    double hue = fmod(i * 137.508, 360) / 60, light = 0.46 + 0.07 * (i % 3 - 1), strong = 0.5;
    double c = (1 - fabs(2 * light - 1)) * strong, x = c * (1 - fabs(fmod(hue, 2) - 1));
    double part[6][3] = {{c, x, 0}, {x, c, 0}, {0, c, x}, {0, x, c}, {x, 0, c}, {c, 0, x}};
    for (int k = 0; k < 3; k++)
        rgb[k] = (unsigned char)lround(255 * (part[(int)hue][k] + light - c / 2));
}

const char *report_color(int i) {
    static _Thread_local char text[4][8];
    static _Thread_local unsigned at;
    unsigned char rgb[3];
    char *out = text[at++ % 4];
    report_rgb(i, rgb);
    snprintf(out, sizeof text[0], "#%02x%02x%02x", rgb[0], rgb[1], rgb[2]);
    return out;
}

static int by_id(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* A file without its folders; of an array its number: "#17". */
static const char *short_name(const char *path) {
    const char *slash = strrchr(path, '/'), *number = strrchr(path, '#');
    if (number && number[1] && !number[1 + strspn(number + 1, "0123456789")]) return number;
    return slash && slash[1] ? slash + 1 : path;
}

/* "IMG_1.jpg, Sneaker" */
static void write_about(FILE *f, const report *r, int64_t id) {
    html_text(f, short_name(r->f->image[id]));
    if (r->labeled && r->f->label[id] >= 0)
        html_print(f, ", %s", folder_class(r->f, r->f->label[id]));
}

void report_picture(FILE *f, const report *r, int64_t id, const char *frame) {
    const int64_t *at =
        r->picture ? bsearch(&id, r->shown, (size_t)r->n_shown, sizeof id, by_id) : NULL;
    const webp *p = at ? &r->picture[at - r->shown] : NULL;
    if (!p || !p->n) {
        fprintf(f, "<span class=\"pic none %s\" title=\"", frame);
        html_text(f, r->f->image[id]);
        fputs("\">", f);
        write_about(f, r, id);
        fputs("</span>", f);
        return;
    }
    fprintf(f, "<img class=\"pic %s%s\" width=\"%d\" height=\"%d\" decoding=\"async\" alt=\"",
            frame, r->side <= 40 ? " px" : "", r->side, r->side);
    write_about(f, r, id);
    fputs("\" title=\"", f);
    write_about(f, r, id);
    fputs("\" src=\"data:image/webp;base64,", f);
    html_base64(f, p->bytes, p->n);
    fputs("\">", f);
}

static void write_percent(FILE *f, double share) {
    fprintf(f, share > 0 && share < 0.0995 ? "%.1f&#8239;%%" : "%.0f&#8239;%%", 100 * share);
}

/* The largest class of a cluster; -1 where there is none. */
static int row_of(const report *r, int k) {
    for (int i = 0; r->labeled && i < r->confusion.clusters; i++)
        if (r->confusion.cluster[i] == k) return i;
    return -1;
}

static int main_class(const report *r, int row) {
    const int64_t *count = r->confusion.count + (size_t)row * r->confusion.classes;
    int best = 0;
    for (int j = 1; j < r->confusion.classes; j++)
        if (count[j] > count[best]) best = j;
    return best;
}

/* ---- the summary ----------------------------------------------------------------------------- */

static void tile(FILE *f, const char *name, const char *value, const char *note) {
    html_print(f, "<div class=\"tile\"><dt>%s</dt><dd>%s", name, value);
    if (note) html_print(f, "<small>%s</small>", note);
    fputs("</dd></div>\n", f);
}

static void tile_number(FILE *f, const char *name, double value, const char *note) {
    char text[32];
    snprintf(text, sizeof text, "%.3f", value);
    if (isfinite(value)) tile(f, name, text, note);
}

static void write_tiles(FILE *f, const report *r) {
    const folder *from = r->f;
    char clusters[32], note[64] = "", rate[48];
    fputs("<dl class=\"tiles\">\n", f);
    tile(f, "Images", html_count(r->n), NULL);
    snprintf(clusters, sizeof clusters, "%d", r->K);
    if (r->labeled) snprintf(note, sizeof note, "%d classes in the labels", r->scores.classes);
    tile(f, "Clusters", clusters, note[0] ? note : NULL);
    if (r->labeled) {
        tile_number(f, "NMI", r->scores.nmi, "shared information, 1 is best");
        tile_number(f, "ACC", r->scores.acc, "right, clusters matched to classes");
        tile_number(f, "ARI", r->scores.ari, "pairs that agree, 0 is chance");
        if (from->log.knn.n)
            tile_number(f, "20-NN", from->log.knn.y[from->log.knn.n - 1],
                        "neighbors that know the class");
    }
    if (!r->labeled) tile_number(f, "Silhouette", r->silhouette, "-1 to 1, higher is clearer");
    if (from->log.stability.n)
        tile_number(f, "Stability", from->log.stability.y[from->log.stability.n - 1],
                    "images that kept their cluster");
    if (from->log.seconds > 0) {
        snprintf(rate, sizeof rate, "%s images a second",
                 html_count((int64_t)from->log.images_per_s));
        tile(f, "Training", html_time(from->log.seconds), from->log.images_per_s > 0 ? rate : NULL);
    }
    fputs("</dl>\n", f);
}

static void write_size(FILE *f, const folder_data *d) {
    if (!d->channels) return;
    fputs(d->channels == 1 ? ", gray" : ", color", f);
    if (d->width[0] == d->width[1] && d->height[0] == d->height[1])
        fprintf(f, ", %d&#8239;&times;&#8239;%d pixels", d->width[0], d->height[0]);
    else
        fprintf(f, ", from %d&#8239;&times;&#8239;%d to %d&#8239;&times;&#8239;%d pixels",
                d->width[0], d->height[0], d->width[1], d->height[1]);
}

static void write_words(FILE *f, const report *r) {
    const folder *from = r->f;
    const train_options *o = &from->o;
    html_print(f, "<p class=\"lead\">%s images were sorted by what they look like%s.</p>\n",
               html_count(r->n),
               r->labeled ? "; labels were looked at afterwards only, to score the result"
                          : ", without any labels");
    fputs("<p>", f);
    if (from->data.words) {
        html_print(f, "The images: %s", from->data.words);
        write_size(f, &from->data);
        if (from->data.path) html_print(f, ", at <code>%s</code>", from->data.path);
        fputs(". ", f);
    }
    html_print(f, "The network: %s, seeing %d&#8239;&times;&#8239;%d pixels. ", o->encoder, o->size,
               o->size);
    int all = last_epoch(o), first = o->stage1_epochs < all ? o->stage1_epochs : all;
    html_print(f, "The training: %d epochs of %s", first, o->framework);
    if (all > first) {
        html_print(f, ", then %d epochs that pull images towards their %s", all - first,
                   !strcmp(o->neighborhood, "conaff")  ? "contextually affinitive neighbors"
                   : !strcmp(o->neighborhood, "local") ? "nearest neighbors"
                                                       : "own views");
        if (o->boundary) fputs(", holding back those between clusters", f);
    }
    html_print(f, "; batches of %d, seed %d, on %s. The run: <code>%s</code>.</p>\n", o->batch,
               o->seed, o->device[0] ? o->device : "an unknown device", from->name);
}

static void write_warnings(FILE *f, const report *r) {
    const folder *from = r->f;
    bool any = from->log.n_warnings || from->data.skipped || r->no_pictures || !from->done;
    if (!any) {
        fputs("<p class=\"good\">No warnings: no collapse, no tiny or lopsided clusters, no "
              "skipped images.</p>\n",
              f);
        return;
    }
    fputs("<div class=\"warn\" role=\"note\"><h2>Warnings</h2><ul>\n", f);
    for (int i = 0; i < from->log.n_warnings; i++)
        html_print(f, "<li>%s</li>\n", from->log.warning[i]);
    if (from->data.skipped)
        html_print(f, "<li>%s %s could not be read and %s skipped; the first: %s</li>\n",
                   html_count(from->data.skipped), from->data.skipped == 1 ? "image" : "images",
                   from->data.skipped == 1 ? "was" : "were",
                   from->data.first_skipped ? from->data.first_skipped : "damaged");
    if (!from->done) fputs("<li>The run has not come to its end; go on with --resume</li>\n", f);
    if (r->no_pictures) html_print(f, "<li>No pictures: %s</li>\n", r->no_pictures);
    fputs("</ul></div>\n", f);
}

static void write_sizes(FILE *f, const report *r) {
    chart_bar *bar = calloc((size_t)r->K, sizeof *bar);
    char(*name)[2][16] = calloc((size_t)r->K, sizeof *name); /* and color */
    if (bar && name) {
        for (int k = 0; k < r->K; k++) {
            snprintf(name[k][0], sizeof name[k][0], "%d", k);
            snprintf(name[k][1], sizeof name[k][1], "%s", report_color(k));
            bar[k] = (chart_bar){name[k][0], (double)r->cluster[k].size, name[k][1]};
        }
        chart_bars(f, "Images of each cluster", "cluster", bar, r->K);
    }
    free(bar), free(name);
}

enum { CONFUSION_MOST = 40 }; /* rows and columns of a table that still reads */

/* Clusters in the order of the classes that they were matched with. */
static void write_confusion(FILE *f, const report *r) {
    const conr_confusion *m = &r->confusion;
    if (m->classes > CONFUSION_MOST || m->clusters > CONFUSION_MOST) return;
    fputs("<figure class=\"confusion\"><figcaption>Clusters against classes: how many images they "
          "share</figcaption>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
          "aria-label=\"Table of clusters against classes\"><table><thead><tr>"
          "<th scope=\"col\">Cluster</th>",
          f);
    for (int j = 0; j < m->classes; j++)
        html_print(f, "<th scope=\"col\"><span>%s</span></th>", folder_class(r->f, m->class_[j]));
    fputs("</tr></thead><tbody>\n", f);
    for (int turn = 0; turn <= m->classes; turn++)
        for (int i = 0; i < m->clusters; i++) {
            int match = m->match[i] < 0 ? m->classes : m->match[i];
            if (match != turn) continue;
            int64_t sum = 0;
            for (int j = 0; j < m->classes; j++) sum += m->count[(size_t)i * m->classes + j];
            html_print(f, "<tr><th scope=\"row\">%d</th>", (int)m->cluster[i]);
            for (int j = 0; j < m->classes; j++) {
                int64_t count = m->count[(size_t)i * m->classes + j];
                double share = sum ? (double)count / (double)sum : 0;
                fprintf(f, "<td%s style=\"background:rgba(47,125,209,%.2f)\">",
                        j == m->match[i] ? " class=\"hit\"" : "", 0.45 * share);
                if (count) fputs(html_count(count), f);
                fputs("</td>", f);
            }
            fputs("</tr>\n", f);
        }
    fputs("</tbody></table></div><p class=\"note\">Outlined: the class that the cluster is matched "
          "with under ACC.</p></figure>\n",
          f);
}

void report_write_summary(FILE *f, const report *r) {
    fputs("<section id=\"summary\" aria-labelledby=\"h-summary\">\n", f);
    html_print(f, "<h1 id=\"h-summary\">%s in %d %s</h1>\n",
               r->f->data.path ? short_name(r->f->data.path) : r->f->name, r->K,
               r->K == 1 ? "cluster" : "clusters");
    write_words(f, r);
    write_tiles(f, r);
    write_warnings(f, r);
    fputs("<div class=\"charts\">\n", f);
    write_sizes(f, r);
    if (r->labeled) write_confusion(f, r);
    fputs("</div>\n</section>\n", f);
}

/* ---- clusters -------------------------------------------------------------------------------- */

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
        write_percent(f, (double)count[best] / (double)sum);
        fputs("</li>", f);
    }
    if (left > 0) {
        fputs("<li><span class=\"meter\"></span><span class=\"what\">others</span> ", f);
        write_percent(f, (double)left / (double)sum);
        fputs("</li>", f);
    }
    fputs("</ul>\n", f);
    free(used);
}

static void write_sheet(FILE *f, const report *r, const char *title, const int64_t *id, int n,
                        int64_t usual) {
    if (n == 0) return;
    fprintf(f, "<figure class=\"sheet\"><figcaption>%s</figcaption><ul class=\"pics\">\n", title);
    for (int i = 0; i < n; i++) {
        bool odd = usual >= 0 && r->f->label[id[i]] >= 0 && r->f->label[id[i]] != usual;
        fputs("<li>", f);
        report_picture(f, r, id[i], odd ? "bad" : "");
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
               "class=\"dot\" style=\"background:%s\"></span>Cluster %d</h3>\n<p class=\"facts\">"
               "%s %s, ",
               k, k, report_color(k), k, html_count(c->size), c->size == 1 ? "image" : "images");
    write_percent(f, (double)c->size / (double)r->n);
    fputs(" of all", f);
    if (best >= 0) { html_print(f, "; mostly <strong>%s</strong>", folder_class(r->f, usual)); }
    fputs("</p>\n", f);
    if (row >= 0) write_mix(f, r, row);
    write_sheet(f, r, "Most central", c->central, c->n_central, usual);
    write_sheet(f, r, "On the boundary to others", c->boundary, c->n_boundary, usual);
    fputs("</article>\n", f);
}

void report_write_clusters(FILE *f, const report *r) {
    int left_out = 0;
    fputs("<section id=\"clusters\" aria-labelledby=\"h-clusters\">\n"
          "<h2 id=\"h-clusters\">Clusters</h2>\n<p>Central images are nearest to the middle of "
          "their cluster; boundary images are nearly as near to another one.",
          f);
    if (r->labeled) fputs(" Framed red: not of the cluster's most frequent class.", f);
    fputs("</p>\n<div class=\"clusters\">\n", f);
    for (int k = 0; k < r->K; k++)
        if (r->cluster[k].n_central)
            write_cluster(f, r, k);
        else
            left_out += r->cluster[k].size > 0;
    fputs("</div>\n", f);
    if (left_out)
        html_print(f,
                   "<p class=\"note\">The %d smallest clusters are not shown here; labels.csv has "
                   "all of them.</p>\n",
                   left_out);
    fputs("</section>\n", f);
}

/* ---- neighbors ------------------------------------------------------------------------------- */

/* red: another class; green: right, but not among the nearest. */
static const char *frame_of(const report *r, const report_query *q, int kind, int at) {
    int64_t own = r->labeled ? r->f->label[q->id] : -1, id = q->near[kind][at];
    if (own < 0 || r->f->label[id] < 0) return "";
    if (r->f->label[id] != own) return "bad";
    for (int i = 0; kind == 1 && i < REPORT_NEAR; i++)
        if (q->near[0][i] == id) return "";
    return kind == 1 ? "hard" : "";
}

static void write_query(FILE *f, const report *r, const report_query *q) {
    static const char *const names[] = {"Euclidean", "ConAff"};
    fputs("<article class=\"query\"><div class=\"asked\">", f);
    report_picture(f, r, q->id, "");
    html_print(f, "<p>%s", short_name(r->f->image[q->id]));
    if (r->labeled && r->f->label[q->id] >= 0)
        html_print(f, "<br><strong>%s</strong>", folder_class(r->f, r->f->label[q->id]));
    html_print(f, "<br>cluster %d</p></div>\n<div class=\"found\">", r->f->cluster[q->id]);
    for (int kind = 0; kind < 2; kind++) {
        html_print(f, "<div class=\"row\"><h3>%s</h3><ol class=\"pics\">", names[kind]);
        for (int i = 0; i < REPORT_NEAR && q->near[kind][i] >= 0; i++) {
            fputs("<li>", f);
            report_picture(f, r, q->near[kind][i], frame_of(r, q, kind, i));
            fputs("</li>", f);
        }
        fputs("</ol></div>\n", f);
    }
    fputs("</div></article>\n", f);
}

void report_write_neighbors(FILE *f, const report *r) {
    if (r->n_queries == 0) return;
    fputs("<section id=\"neighbors\" aria-labelledby=\"h-neighbors\">\n"
          "<h2 id=\"h-neighbors\">Neighbors</h2>\n<p>An image and its ten nearest: by the distance "
          "of features (Euclidean) above, by contextual affinity (ConAff: whose neighbors are one "
          "another's neighbors) below.",
          f);
    if (r->labeled)
        fputs(" <span class=\"swatch bad\"></span> of another class; <span class=\"swatch "
              "hard\"></span> a hard positive: right, and not among the Euclidean ten.",
              f);
    html_print(f,
               " The first %d are images where the two differ most; the others are drawn at "
               "random.</p>\n",
               r->n_telling);
    if (r->pool < r->n)
        html_print(f, "<p class=\"note\">Looked for among %s of the images.</p>\n",
                   html_count(r->pool));
    for (int i = 0; i < r->n_queries; i++) write_query(f, r, &r->query[i]);
    fputs("</section>\n", f);
}

/* ---- curves ---------------------------------------------------------------------------------- */

static void write_scores_chart(FILE *f, const folder *from, double mark) {
    const folder_log *l = &from->log;
    chart_line labeled[] = {{"NMI", &l->nmi, NULL, 0, false, true},
                            {"ACC", &l->acc, NULL, 1, false, true},
                            {"ARI", &l->ari, NULL, 2, false, true},
                            {"20-NN accuracy", &l->knn, NULL, 3, true, false}};
    chart_line other[] = {{"Silhouette", &l->silhouette, NULL, 0, false, true},
                          {"Stability", &l->stability, NULL, 1, false, true}};
    chart c = {.title = l->nmi.n ? "Scores against labels" : "Scores without labels",
               .x_name = "epoch",
               .y_name = "score",
               .line = l->nmi.n ? labeled : other,
               .n = l->nmi.n ? 4 : 2,
               .low = 0,
               .high = 1,
               .mark = mark,
               .mark_text = "stage 2"};
    if (!l->nmi.n) c.low = NAN;
    chart_write(f, &c);
}

static void write_purity(FILE *f, const report *r) {
    chart_line line[] = {
        {"ConAff, without boundary images", &r->purity[3], NULL, 1, true, false},
        {"ConAff", &r->purity[1], NULL, 1, false, false},
        {"Euclidean, without boundary images", &r->purity[2], NULL, 0, true, false},
        {"Euclidean", &r->purity[0], NULL, 0, false, false}};
    chart c = {.title = "Purity: the share of an image's first K neighbors that are of its class",
               .x_name = "K",
               .y_name = "purity",
               .line = line,
               .n = 4,
               .low = NAN,
               .high = NAN,
               .mark = NAN};
    chart_write(f, &c);
}

void report_write_curves(FILE *f, const report *r) {
    const folder *from = r->f;
    double mark = from->o.stage1_epochs < last_epoch(&from->o) ? from->o.stage1_epochs : NAN;
    chart_line loss = {"loss", &from->log.loss, NULL, 0, false, false};
    chart_line lr = {"lr", &from->log.lr, NULL, 4, false, false};
    chart c = {.title = "Loss",
               .x_name = "epoch",
               .y_name = "loss",
               .line = &loss,
               .n = 1,
               .low = NAN,
               .high = NAN,
               .mark = mark,
               .mark_text = "stage 2"};
    fputs("<section id=\"curves\" aria-labelledby=\"h-curves\">\n<h2 id=\"h-curves\">Curves</h2>\n"
          "<div class=\"charts\">\n",
          f);
    write_scores_chart(f, from, mark);
    if (r->labeled) write_purity(f, r);
    chart_write(f, &c);
    c.title = "Learning rate", c.y_name = "learning rate", c.line = &lr, c.low = 0;
    chart_write(f, &c);
    fputs("</div>\n", f);
    if (r->labeled)
        html_print(f,
                   "<p class=\"note\">Boundary images are the %.0f&#8239;%% whose features lie "
                   "nearest to another cluster (%s of them).</p>\n",
                   100 * (1 - r->fraction), html_count(r->n_boundary));
    fputs("</section>\n", f);
}

/* ---- settings -------------------------------------------------------------------------------- */

void report_write_settings(FILE *f, const report *r) {
    conr_settings s = {r->f->o};
    conr_setting_info i;
    char value[OPTION_TEXT_SIZE];
    fputs(
        "<section id=\"settings\" aria-labelledby=\"h-settings\">\n<h2 id=\"h-settings\">Settings"
        "</h2>\n<dl class=\"words\"><dt>NMI, ACC, ARI</dt><dd>Agreement of clusters with labels: "
        "information they share; images that fall right when each cluster stands for one class; "
        "pairs of images that both keep together or both part, corrected for chance. 1 is "
        "perfect.</dd><dt>Silhouette</dt><dd>How much nearer images are to their own cluster "
        "than to the next one.</dd><dt>Boundary</dt><dd>0 in the middle of a cluster, 1 half way "
        "to the next.</dd></dl>\n<details><summary>Every setting of this run</summary>\n<div "
        "class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table of settings\"><table "
        "class=\"plain said\"><thead><tr><th scope=\"col\">Setting</th><th scope=\"col\">Value</th>"
        "<th scope=\"col\">What it is</th></tr></thead><tbody>\n",
        f);
    for (int k = 0; conr_setting(k, &i); k++) {
        if (conr_settings_get(&s, i.key, value, sizeof value) < 0) continue;
        html_print(f, "<tr><th scope=\"row\">%s</th><td>", i.key);
        html_print(f, strcmp(value, i.initial) ? "<strong>%s</strong>" : "%s", value);
        html_print(f, "</td><td>%s</td></tr>\n", i.help);
    }
    fputs("</tbody></table></div>\n<p class=\"note\">Bold: other than the default. options.yaml in "
          "the run's folder is a recipe that repeats it.</p></details>\n</section>\n",
          f);
}
