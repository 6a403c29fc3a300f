/* section_curves.c: scores, loss and learning rate over epochs; purity over the number of
 * neighbors. */
#include "report/section.h"

#include "report/html.h"

#include <math.h>

static void write_scores_chart(FILE *f, const folder *from, double mark) {
    const folder_log *l = &from->log;
    chart_line labeled[] = {{"NMI", &l->nmi, NULL, 0, false, true},
                            {"ACC", &l->acc, NULL, 1, false, true},
                            {"ARI", &l->ari, NULL, 2, false, true},
                            {"20-NN accuracy", &l->knn, NULL, 3, true, false}};
    chart c = {.title = "Scores against labels",
               .x_name = "epoch",
               .y_name = "score",
               .line = labeled,
               .n = 4,
               .low = 0,
               .high = 1,
               .mark = mark,
               .mark_text = "stage 2"};
    chart_write(f, &c);
}

/* What is known without labels; a sentence says what a fall means. */
static void write_signs(FILE *f, const folder *from, double mark) {
    const folder_log *l = &from->log;
    chart_line line[] = {{"Neighbor agreement", &l->agreement, NULL, 0, false, true},
                         {"Modularity", &l->modularity, NULL, 1, false, true},
                         {"Stability", &l->stability, NULL, 2, true, true},
                         {"Silhouette", &l->silhouette, NULL, 3, true, true}};
    chart_line gap = {"Gap", &l->gap, NULL, 5, false, true};
    chart c = {.title = "Signs that need no labels",
               .x_name = "epoch",
               .y_name = "score",
               .line = line,
               .n = 4,
               .low = NAN,
               .high = 1,
               .mark = mark,
               .mark_text = "stage 2"};
    chart_write(f, &c);
    c.title = "Gap from the best optimum of k-means to the next", c.y_name = "gap";
    c.line = &gap, c.n = 1, c.low = 0, c.high = NAN;
    chart_write(f, &c);
}

static void write_purity(FILE *f, const report *r) {
    chart_line line[] = {
        {"ConAff, without boundary images", &r->purity[3], NULL, 1, true, false},
        {"ConAff", &r->purity[1], NULL, 1, false, false},
        {"Euclidean, without boundary images", &r->purity[2], NULL, 0, true, false},
        {"Euclidean", &r->purity[0], NULL, 0, false, false}};
    chart c = {.title = "Purity: share of K nearest neighbors of the same class",
               .x_name = "K",
               .y_name = "purity",
               .line = line,
               .n = 4,
               .low = NAN,
               .high = NAN,
               .mark = NAN};
    chart_write(f, &c);
}

bool section_has_curves(const report *r) { return r->labeled || !r->f->of_features; }

static void write_training(FILE *f, const report *r) {
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
    if (from->log.nmi.n) write_scores_chart(f, from, mark);
    write_signs(f, from, mark);
    if (r->labeled) write_purity(f, r);
    chart_write(f, &c);
    c.title = "Learning rate", c.y_name = "learning rate", c.line = &lr, c.low = 0;
    chart_write(f, &c);
}

void section_write_curves(FILE *f, const report *r) {
    fputs("<section id=\"curves\" aria-labelledby=\"h-curves\">\n<h2 id=\"h-curves\">Curves</h2>\n"
          "<div class=\"charts\">\n",
          f);
    if (r->f->of_features)
        write_purity(f, r);
    else
        write_training(f, r);
    fputs("</div>\n", f);
    if (!r->f->of_features && r->f->log.agreement.n)
        fputs("<p class=\"note\">Neighbor agreement is the share of an image&rsquo;s 20 nearest "
              "neighbors in its own cluster; modularity is that less what clusters of these sizes "
              "would have by chance. If either falls, the clusters now cut through images that "
              "look alike to the network: k-means has turned to other groups, and an earlier "
              "epoch may have been better. A gap near 0 means that k-means finds two "
              "groupings almost equally good, so that the next clustering may be the other "
              "one.</p>\n",
              f);
    if (r->labeled)
        html_print(f,
                   "<p class=\"note\">Boundary images are the %.0f&#8239;%% of the images with the "
                   "highest boundary ratio (%s images).</p>\n",
                   100 * (1 - r->fraction), html_count(r->n_boundary));
    fputs("</section>\n", f);
}
