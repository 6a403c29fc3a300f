/* section_summary.c: what was clustered, the scores, warnings, cluster sizes, confusion table. */
#include "report/section.h"

#include "report/html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    tile(f, from->of_features && r->never_pictures ? "Rows" : "Images", html_count(r->n), NULL);
    snprintf(clusters, sizeof clusters, "%d", from->used);
    if (r->labeled) snprintf(note, sizeof note, "%d classes in the labels", r->scores.classes);
    tile(f, "Clusters", clusters, note[0] ? note : NULL);
    if (r->labeled) {
        tile_number(f, "NMI", r->scores.nmi, "shared information, 1 is best");
        tile_number(f, "ACC", r->scores.acc, "correct, clusters matched to classes");
        tile_number(f, "ARI", r->scores.ari, "agreement on pairs, 0 is chance");
        if (from->log.knn.n)
            tile_number(f, "20-NN", from->log.knn.y[from->log.knn.n - 1],
                        "accuracy by 20 nearest neighbors");
    }
    if (!r->labeled) tile_number(f, "Silhouette", r->silhouette, "separation from -1 to 1");
    if (from->log.agreement.n)
        tile_number(f, "Neighbor agreement", from->log.agreement.y[from->log.agreement.n - 1],
                    "20 nearest neighbors in the same cluster");
    if (from->log.stability.n)
        tile_number(f, "Stability", from->log.stability.y[from->log.stability.n - 1],
                    "images that kept their cluster");
    if (from->log.seconds > 0) {
        snprintf(rate, sizeof rate, "%s images per second",
                 html_count((int64_t)from->log.images_per_s));
        tile(f, from->of_features ? "Time" : "Training", html_time(from->log.seconds),
             from->log.images_per_s > 0 ? rate : NULL);
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

static void write_training(FILE *f, const train_options *o) {
    html_print(f, "Network: %s, with inputs of %d&#8239;&times;&#8239;%d pixels. ", o->encoder,
               o->size, o->size);
    int all = last_epoch(o), first = o->stage1_epochs < all ? o->stage1_epochs : all;
    html_print(f, "Training: %d epochs of %s", first, o->framework);
    if (all > first) {
        html_print(f, ", then %d epochs that pull each image toward its %s", all - first,
                   !strcmp(o->neighborhood, "conaff")  ? "contextually affinitive neighbors"
                   : !strcmp(o->neighborhood, "local") ? "nearest neighbors"
                                                       : "own views");
        if (o->boundary) fputs(", holding back images on cluster boundaries", f);
    }
    html_print(f, "; batch size %d, ", o->batch);
}

static void write_made(FILE *f, const features_options *o) {
    html_print(f, "Features: %s of each, ", html_count(o->columns));
    if (!strcmp(o->source, "hog"))
        fputs("by the built-in descriptor (gradients and colors). ", f);
    else if (!strcmp(o->source, "encoder"))
        html_print(f, "by the pretrained network <code>%s</code>. ", o->encoder);
    else if (!strcmp(o->source, "run"))
        html_print(f, "the embeddings of the run <code>%s</code>, clustered again. ", o->from);
    else
        html_print(f, o->from[0] ? "from <code>%s</code>. " : "given as an array%s. ", o->from);
    if (!strcmp(o->refine, "conaff") && strcmp(o->source, "run"))
        fputs("Refined: a head was trained on them, pulling each row toward its contextually "
              "affinitive neighbors. ",
              f);
    if (o->refine_chosen)
        fputs(!strcmp(o->refine, "conaff")
                  ? "Neighbors among the features confirm these clusters better than those of the "
                    "features as given. "
                  : "Not refined: neighbors confirm these clusters as well as those of refined "
                    "features, or better. ",
              f);
    html_print(f, "Clusters: %s%s%s; ",
               !strcmp(o->method, "graph") ? "of the graph of contextual affinities" : "k-means",
               o->method_chosen ? ", chosen by signs that need no labels" : "",
               o->clusters_high ? "; their number was estimated" : "");
}

static void write_description(FILE *f, const report *r) {
    const folder *from = r->f;
    const train_options *o = &from->o;
    html_print(f, "<p class=\"lead\">%s %s%s.</p>\n", html_count(r->n),
               r->never_pictures ? "rows of features, grouped by likeness"
                                 : "images, grouped by what they look like",
               r->labeled ? "; labels were used only afterwards, to score the result"
                          : ", without any labels");
    if (from->decisions)
        html_print(f,
                   "<p>The clusters are as a person edited them, in %d %s; the run itself found %d "
                   "(<code>untouched.csv</code>).</p>\n",
                   from->decisions, from->decisions == 1 ? "decision" : "decisions", from->found);
    fputs("<p>", f);
    if (from->data.words) {
        html_print(f, "Images: %s", from->data.words);
        write_size(f, &from->data);
        if (from->data.path) html_print(f, ", at <code>%s</code>", from->data.path);
        fputs(". ", f);
    }
    if (from->of_features)
        write_made(f, &from->made);
    else
        write_training(f, o);
    html_print(f, "seed %d, on %s. Run: <code>%s</code>.</p>\n", o->seed,
               o->device[0] ? o->device : "an unknown device", from->name);
}

static void cell(FILE *f, double value) {
    if (isfinite(value))
        fprintf(f, "<td>%.3f</td>", value);
    else
        fputs("<td></td>", f);
}

/* The run beside clusters that needed no training. */
static void write_baseline(FILE *f, const report *r) {
    const folder_log *l = &r->f->log;
    const struct folder_side *side[2] = {&l->training, &l->descriptor};
    bool labeled = isfinite(l->training.acc);
    if (l->baseline <= 0) return;
    html_print(f,
               "<figure class=\"baseline\"><figcaption>Beside the built-in descriptor, which needs "
               "no training (%s images)</figcaption>\n<div class=\"scroll\" tabindex=\"0\" "
               "role=\"region\" aria-label=\"Table of the run and the built-in descriptor\">"
               "<table><thead><tr><th scope=\"col\">Clusters of</th>",
               html_count(l->baseline));
    fputs(labeled ? "<th scope=\"col\">NMI</th><th scope=\"col\">ACC</th><th scope=\"col\">ARI</th>"
                  : "<th scope=\"col\">Silhouette</th><th scope=\"col\">Stability</th>",
          f);
    fputs("<th scope=\"col\">Neighbors in the cluster</th><th scope=\"col\">Confirmed</th></tr>"
          "</thead><tbody>\n",
          f);
    for (int i = 0; i < 2; i++) {
        const struct folder_side *s = side[i];
        fprintf(f, "<tr><th scope=\"row\">%s</th>", i ? "the descriptor" : "this run");
        if (labeled)
            cell(f, s->nmi), cell(f, s->acc), cell(f, s->ari);
        else
            cell(f, s->silhouette), cell(f, s->stability);
        cell(f, s->agreement), cell(f, s->confirmed);
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></div><p class=\"note\">Neighbors in the cluster: the share of an "
          "image&rsquo;s 10 nearest neighbors that have its cluster. Confirmed: the same among its "
          "nearest neighbors by the other row&rsquo;s features, beyond chance; what is real about "
          "the images shows in both.</p></figure>\n",
          f);
}

/* The images that could not be read, by name. */
static void write_skipped(FILE *f, const folder_data *d) {
    html_print(f, "<li>%s %s could not be read and %s skipped", html_count(d->skipped),
               d->skipped == 1 ? "image" : "images", d->skipped == 1 ? "was" : "were");
    if (d->n_reasons) fputs(":<ul>\n", f);
    for (int i = 0; i < d->n_reasons; i++) html_print(f, "<li>%s</li>\n", d->reason[i]);
    if (d->n_reasons && d->skipped > d->n_reasons)
        html_print(f, "<li>and %s more; <code>conr info --json</code> lists them</li>\n",
                   html_count(d->skipped - d->n_reasons));
    fputs(d->n_reasons ? "</ul></li>\n" : "</li>\n", f);
}

static void write_warnings(FILE *f, const report *r) {
    const folder *from = r->f;
    bool any = from->log.n_warnings || from->data.skipped || !from->done ||
               (r->no_pictures && !r->never_pictures);
    if (!any) {
        fputs(from->of_features
                  ? "<p class=\"good\">No warnings: no tiny or lopsided clusters.</p>\n"
                  : "<p class=\"good\">No warnings: no collapse, no tiny or lopsided clusters, no "
                    "skipped images.</p>\n",
              f);
        return;
    }
    fputs("<div class=\"warn\" role=\"note\"><h2>Warnings</h2><ul>\n", f);
    for (int i = 0; i < from->log.n_warnings; i++)
        html_print(f, "<li>%s</li>\n", from->log.warning[i]);
    if (from->data.skipped) write_skipped(f, &from->data);
    if (!from->done)
        html_print(f, "<li>This run is not finished; %s</li>\n",
                   from->of_features ? "repeat it" : "continue it with --resume");
    if (r->no_pictures && !r->never_pictures)
        html_print(f, "<li>No pictures: %s</li>\n", r->no_pictures);
    fputs("</ul></div>\n", f);
}

static void write_sizes(FILE *f, const report *r) {
    chart_bar *bar = calloc((size_t)r->K, sizeof *bar);
    char(*name)[2][16] = calloc((size_t)r->K, sizeof *name); /* and its color */
    int bars = 0;
    if (bar && name) {
        for (int k = 0; k < r->K; k++) {
            if (r->f->cluster_name && !r->cluster[k].size) continue; /* merged into another */
            snprintf(name[k][0], sizeof name[k][0], "%d", k);
            snprintf(name[k][1], sizeof name[k][1], "%s", section_color(k));
            bar[bars++] = (chart_bar){name[k][0], (double)r->cluster[k].size, name[k][1]};
        }
        chart_bars(f, r->never_pictures ? "Rows per cluster" : "Images per cluster", "cluster", bar,
                   bars);
    }
    free(bar), free(name);
}

enum { CONFUSION_MOST = 40 }; /* rows and columns of a table that can still be read */

/* Clusters in the order of the classes they are matched to. */
static void write_confusion(FILE *f, const report *r) {
    const conr_confusion *m = &r->confusion;
    if (m->classes > CONFUSION_MOST || m->clusters > CONFUSION_MOST) return;
    fputs("<figure class=\"confusion\"><figcaption>Clusters and classes: number of images in "
          "common</figcaption>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
          "aria-label=\"Table of clusters and classes\"><table><thead><tr>"
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
            const char *const *names = r->f->cluster_name;
            if (names && names[m->cluster[i]])
                html_print(f, "<tr><th scope=\"row\">%s</th>", names[m->cluster[i]]);
            else
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
    fputs("</tbody></table></div><p class=\"note\">Outlined: the class matched to the cluster "
          "for ACC.</p></figure>\n",
          f);
}

void section_write_summary(FILE *f, const report *r) {
    fputs("<section id=\"summary\" aria-labelledby=\"h-summary\">\n", f);
    html_print(f, "<h1 id=\"h-summary\">%s in %d %s</h1>\n", folder_title(r->f), r->f->used,
               r->f->used == 1 ? "cluster" : "clusters");
    write_description(f, r);
    if (r->f->log.note) html_print(f, "<p class=\"lead\" role=\"note\">%s</p>\n", r->f->log.note);
    write_tiles(f, r);
    write_warnings(f, r);
    write_baseline(f, r);
    fputs("<div class=\"charts\">\n", f);
    write_sizes(f, r);
    if (r->labeled) write_confusion(f, r);
    fputs("</div>\n</section>\n", f);
}
