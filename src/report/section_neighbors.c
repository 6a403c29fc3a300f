/* section_neighbors.c: some images with their neighbors by distance and by affinity. */
#include "report/section.h"

#include "report/html.h"

/* The frame of a neighbor.  bad: another class; hard: the same class, but not among the nearest. */
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
    section_picture(f, r, q->id, "");
    html_print(f, "<p>%s", section_name(r->f->image[q->id]));
    if (r->labeled && r->f->label[q->id] >= 0)
        html_print(f, "<br><strong>%s</strong>", folder_class(r->f, r->f->label[q->id]));
    html_print(f, "<br>%s</p></div>\n<div class=\"found\">",
               folder_cluster(r->f, r->f->cluster[q->id]));
    for (int kind = 0; kind < 2; kind++) {
        html_print(f, "<div class=\"row\"><h3>%s</h3><ol class=\"pics\">", names[kind]);
        for (int i = 0; i < REPORT_NEAR && q->near[kind][i] >= 0; i++) {
            fputs("<li>", f);
            section_picture(f, r, q->near[kind][i], frame_of(r, q, kind, i));
            fputs("</li>", f);
        }
        fputs("</ol></div>\n", f);
    }
    fputs("</div></article>\n", f);
}

void section_write_neighbors(FILE *f, const report *r) {
    if (r->n_queries == 0) return;
    html_print(f,
               "<section id=\"neighbors\" aria-labelledby=\"h-neighbors\">\n"
               "<h2 id=\"h-neighbors\">Neighbors</h2>\n<p>Each %s with its ten nearest neighbors: "
               "above by Euclidean distance between features, below by contextual affinity "
               "(ConAff), which prefers %s whose own neighborhoods overlap.",
               section_things(r, true), section_things(r, false));
    if (r->labeled)
        fputs(" <span class=\"swatch bad\"></span> a different class; <span class=\"swatch "
              "hard\"></span> a hard positive: the same class, but not among the ten Euclidean "
              "neighbors.",
              f);
    html_print(
        f,
        " The first %d were selected, from as many clusters as possible, to show where %s; the "
        "others are chosen at random.</p>\n",
        r->n_telling,
        r->labeled ? "ConAff finds the most additional images of the same class"
                   : "the two lists differ most");
    if (r->labeled)
        fputs("<p class=\"note\">How the two compare on average: purity, under Curves.</p>\n", f);
    if (r->pool < r->n)
        html_print(f, "<p class=\"note\">Searched among %s images, chosen at random.</p>\n",
                   html_count(r->pool));
    for (int i = 0; i < r->n_queries; i++) write_query(f, r, &r->query[i]);
    fputs("</section>\n", f);
}
