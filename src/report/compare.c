/* compare.c: the report that compares several runs.  Runs that differ only in their seed form one
 * group: one row of the table with mean and deviation, one color of the curves. */
#include "base/file.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/output.h"
#include "base/status.h"
#include "conr.h"
#include "report/folder.h"
#include "report/html.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_KEYS = 4, N_SCORES = 5 };
static const char *const score_names[N_SCORES] = {"NMI", "ACC", "ARI", "20-NN", "Silhouette"};

typedef struct group {
    const char *value[MOST_KEYS]; /* of the keys */
    const char *name;             /* "fr0 0.8, k1 10" */
    int runs;
    double mean[N_SCORES], deviation[N_SCORES]; /* NaN: none */
} group;

typedef struct comparison {
    const folder *run;
    int n;
    const char *key[MOST_KEYS]; /* settings that differ */
    int n_keys;
    bool by_name; /* too many settings differ: each run is a group */
    group *group; /* [n_groups] */
    int n_groups;
    int *of; /* [n] the group of a run */
    arena memory;
} comparison;

static const char *setting_of(comparison *c, int run, const char *key) {
    char text[OPTION_TEXT_SIZE] = "";
    conr_settings s = {c->run[run].o};
    conr_settings_get(&s, key, text, sizeof text);
    return arena_text(&c->memory, text, strlen(text));
}

static double last(const series *s) { return s->n ? s->y[s->n - 1] : NAN; }

static double score_of(const folder *f, int which) {
    const series *all[N_SCORES] = {&f->log.nmi, &f->log.acc, &f->log.ari, &f->log.knn,
                                   &f->log.silhouette};
    return last(all[which]);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int find_keys(comparison *c) {
    static const char *const ignored[] = {"seed", "version", "device", "note", "preset"};
    conr_setting_info i;
    for (int k = 0; conr_setting(k, &i); k++) {
        bool differs = false, skip = false;
        for (size_t j = 0; j < sizeof ignored / sizeof *ignored; j++)
            skip = skip || !strcmp(i.key, ignored[j]);
        const char *first = skip ? NULL : setting_of(c, 0, i.key);
        if (!skip && !first) return CONR_ENOMEM;
        for (int r = 1; !skip && r < c->n && !differs; r++) {
            const char *value = setting_of(c, r, i.key);
            if (!value) return CONR_ENOMEM;
            differs = strcmp(first, value) != 0;
        }
        if (!differs) continue;
        if (c->n_keys == MOST_KEYS) c->by_name = true;
        if (c->n_keys < MOST_KEYS) c->key[c->n_keys++] = i.key;
    }
    if (c->by_name) c->n_keys = 0;
    return 0;
}

static int name_group(comparison *c, group *g, int run) {
    char name[1024];
    size_t at = 0;
    name[0] = 0;
    for (int k = 0; k < c->n_keys && at < sizeof name; k++)
        at += (size_t)snprintf(name + at, sizeof name - at, "%s%s %s", k ? ", " : "", c->key[k],
                               g->value[k]);
    const char *text = c->n_keys ? name : c->run[run].name;
    g->name = arena_text(&c->memory, text, strlen(text));
    return g->name ? 0 : CONR_ENOMEM;
}

static int find_groups(comparison *c) {
    int rc = 0;
    c->group = calloc((size_t)c->n, sizeof *c->group);
    c->of = calloc((size_t)c->n, sizeof *c->of);
    if (!c->group || !c->of) TRY(fail_memory("comparison", (double)c->n * sizeof *c->group));
    for (int r = 0; r < c->n; r++) {
        group fresh = {0};
        for (int k = 0; k < c->n_keys; k++)
            if (!(fresh.value[k] = setting_of(c, r, c->key[k]))) TRY(CONR_ENOMEM);
        int g = c->by_name ? c->n_groups : 0;
        for (; g < c->n_groups; g++) {
            bool same = true;
            for (int k = 0; k < c->n_keys; k++)
                same = same && !strcmp(fresh.value[k], c->group[g].value[k]);
            if (same) break;
        }
        if (g == c->n_groups) {
            c->group[c->n_groups++] = fresh;
            TRY(name_group(c, &c->group[g], r));
        }
        c->of[r] = g;
        c->group[g].runs++;
    }
done:
    return rc;
}

static void average_over_seeds(comparison *c) {
    for (int g = 0; g < c->n_groups; g++)
        for (int s = 0; s < N_SCORES; s++) {
            double sum = 0, squares = 0;
            int n = 0;
            for (int r = 0; r < c->n; r++)
                if (c->of[r] == g && isfinite(score_of(&c->run[r], s)))
                    sum += score_of(&c->run[r], s), n++;
            for (int r = 0; r < c->n; r++)
                if (c->of[r] == g && isfinite(score_of(&c->run[r], s)))
                    squares += pow(score_of(&c->run[r], s) - sum / n, 2);
            c->group[g].mean[s] = n ? sum / n : NAN;
            c->group[g].deviation[s] = n > 1 ? sqrt(squares / (n - 1)) : NAN;
        }
}

/* ---- the table ------------------------------------------------------------------------------- */

static double best_of(const comparison *c, int score) {
    double best = -INFINITY;
    for (int g = 0; g < c->n_groups; g++) best = fmax(best, c->group[g].mean[score]);
    return best; /* fmax ignores NaN */
}

static void write_mean(FILE *f, const group *g, int score, bool best) {
    if (!isfinite(g->mean[score])) {
        fputs("&ndash;", f);
        return;
    }
    fprintf(f, best ? "<strong>%.1f</strong>" : "%.1f", 100 * g->mean[score]);
    if (isfinite(g->deviation[score]))
        fprintf(f, "&#8239;&plusmn;&#8239;%.1f", 100 * g->deviation[score]);
}

static void write_table(FILE *f, const comparison *c) {
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table of scores\">"
          "<table class=\"plain\"><thead><tr>",
          f);
    for (int k = 0; k < c->n_keys; k++) html_print(f, "<th scope=\"col\">%s</th>", c->key[k]);
    if (!c->n_keys) fputs("<th scope=\"col\">Run</th>", f);
    fputs("<th scope=\"col\">Runs</th>", f);
    for (int s = 0; s < N_SCORES; s++)
        if (isfinite(best_of(c, s))) html_print(f, "<th scope=\"col\">%s</th>", score_names[s]);
    fputs("</tr></thead><tbody>\n", f);
    for (int g = 0; g < c->n_groups; g++) {
        fputs("<tr>", f);
        for (int k = 0; k < c->n_keys; k++)
            html_print(f, k ? "<td>%s</td>" : "<th scope=\"row\">%s</th>", c->group[g].value[k]);
        if (!c->n_keys) html_print(f, "<th scope=\"row\">%s</th>", c->group[g].name);
        fprintf(f, "<td>%d</td>", c->group[g].runs);
        for (int s = 0; s < N_SCORES; s++) {
            if (!isfinite(best_of(c, s))) continue;
            fputs("<td>", f);
            write_mean(f, &c->group[g], s, c->group[g].mean[s] == best_of(c, s));
            fputs("</td>", f);
        }
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></div>\n", f);
}

/* ---- figures --------------------------------------------------------------------------------- */

static bool is_number(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end;
}

/* Scores over the one setting that differs, such as fr0. */
static int write_over_key(FILE *f, const comparison *c) {
    int rc = 0;
    series data[N_SCORES] = {0};
    double *error = calloc((size_t)c->n_groups * N_SCORES, sizeof *error), x;
    chart_line line[N_SCORES];
    int n = 0;
    char title[300];
    if (!error) return fail_memory("chart", 8.0 * c->n_groups);
    for (int s = 0; s < N_SCORES; s++) {
        if (!isfinite(best_of(c, s))) continue;
        double low = -INFINITY;
        while (true) { /* groups by ascending value of the setting */
            int next = -1;
            double least = INFINITY;
            for (int g = 0; g < c->n_groups; g++)
                if (is_number(c->group[g].value[0], &x) && x > low && x < least)
                    least = x, next = g;
            if (next < 0) break;
            double e = c->group[next].deviation[s];
            error[s * c->n_groups + data[s].n] = isfinite(e) ? e : 0;
            TRY(series_add(&data[s], least, c->group[next].mean[s]));
            low = least;
        }
        line[n++] = (chart_line){score_names[s], &data[s], error + s * c->n_groups, s, false, true};
    }
    snprintf(title, sizeof title, "Scores over %s", c->key[0]);
    chart_write(f, &(chart){.title = title,
                            .x_name = c->key[0],
                            .y_name = "score",
                            .line = line,
                            .n = n,
                            .low = NAN,
                            .high = NAN,
                            .mark = NAN});
done:
    for (int s = 0; s < N_SCORES; s++) series_free(&data[s]);
    free(error);
    return rc;
}

/* The distinct values of a key, in the order of the runs. */
static int values_of(const comparison *c, int key, const char **out) {
    int n = 0;
    for (int g = 0; g < c->n_groups; g++) {
        int i = 0;
        while (i < n && strcmp(out[i], c->group[g].value[key])) i++;
        if (i == n) out[n++] = c->group[g].value[key];
    }
    return n;
}

/* One score over the two settings that differ, such as (k1,k2), shaded from worst to best. */
static int write_grid(FILE *f, const comparison *c, int score) {
    const char **value = calloc(2 * (size_t)c->n_groups, sizeof *value), **other;
    if (!value) return fail_memory("chart", 16.0 * c->n_groups);
    other = value + c->n_groups;
    int rows = values_of(c, 0, value), columns = values_of(c, 1, other);
    double best = best_of(c, score), worst = INFINITY;
    for (int g = 0; g < c->n_groups; g++) worst = fmin(worst, c->group[g].mean[score]);
    html_print(f,
               "<figure class=\"confusion level\"><figcaption>%s over %s (down) and %s (across)"
               "</figcaption><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
               "aria-label=\"%s over %s and %s\"><table><thead><tr><th scope=\"col\">%s</th>",
               score_names[score], c->key[0], c->key[1], score_names[score], c->key[0], c->key[1],
               c->key[0]);
    for (int j = 0; j < columns; j++)
        html_print(f, "<th scope=\"col\"><span>%s&#8239;%s</span></th>", c->key[1], other[j]);
    fputs("</tr></thead><tbody>\n", f);
    for (int i = 0; i < rows; i++) {
        html_print(f, "<tr><th scope=\"row\">%s</th>", value[i]);
        for (int j = 0; j < columns; j++) {
            int g = 0;
            while (g < c->n_groups && (strcmp(c->group[g].value[0], value[i]) ||
                                       strcmp(c->group[g].value[1], other[j])))
                g++;
            if (g == c->n_groups) {
                fputs("<td>&ndash;</td>", f);
                continue;
            }
            double shade = best > worst ? (c->group[g].mean[score] - worst) / (best - worst) : 0;
            fprintf(f, "<td style=\"background:rgba(47,125,209,%.2f)\">",
                    isfinite(shade) ? 0.45 * shade : 0);
            write_mean(f, &c->group[g], score, c->group[g].mean[score] == best);
            fputs("</td>", f);
        }
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></div></figure>\n", f);
    free(value);
    return 0;
}

static int write_figures(FILE *f, const comparison *c) {
    int rc = 0, score = isfinite(best_of(c, 1)) ? 1 : 4;
    double x;
    bool one = c->n_keys == 1 && c->n_groups > 1, two = c->n_keys == 2;
    for (int g = 0; g < c->n_groups && one; g++) one = is_number(c->group[g].value[0], &x);
    if (!one && !two) return 0;
    fputs("<section id=\"figures\" aria-labelledby=\"h-figures\"><h2 id=\"h-figures\">Figures</h2>"
          "\n<div class=\"charts\">\n",
          f);
    if (one) TRY(write_over_key(f, c));
    if (two && isfinite(best_of(c, score))) TRY(write_grid(f, c, score));
    if (two && isfinite(best_of(c, 0))) TRY(write_grid(f, c, 0));
    fputs("</div></section>\n", f);
done:
    return rc;
}

/* ---- curves ---------------------------------------------------------------------------------- */

/* One line per run in the color of its group; the legend names each group once. */
static int write_overlaid(FILE *f, const comparison *c, const char *title, const char *y_name,
                          size_t offset) {
    chart_line *line = calloc((size_t)c->n, sizeof *line);
    if (!line) return fail_memory("chart", (double)c->n * sizeof *line);
    for (int r = 0; r < c->n; r++) {
        bool first = true;
        for (int q = 0; q < r; q++) first = first && c->of[q] != c->of[r];
        line[r] = (chart_line){first ? c->group[c->of[r]].name : NULL,
                               (const series *)((const char *)&c->run[r].log + offset),
                               NULL,
                               c->of[r],
                               c->of[r] >= 8,
                               false};
    }
    chart_write(f, &(chart){.title = title,
                            .x_name = "epoch",
                            .y_name = y_name,
                            .line = line,
                            .n = c->n,
                            .low = NAN,
                            .high = NAN,
                            .mark = NAN});
    free(line);
    return 0;
}

static int write_curves(FILE *f, const comparison *c) {
    static const struct {
        const char *title, *y_name;
        size_t offset;
    } all[] = {{"ACC over epochs", "ACC", offsetof(folder_log, acc)},
               {"NMI over epochs", "NMI", offsetof(folder_log, nmi)},
               {"ARI over epochs", "ARI", offsetof(folder_log, ari)},
               {"Neighbor agreement over epochs", "agreement", offsetof(folder_log, agreement)},
               {"Silhouette over epochs", "silhouette", offsetof(folder_log, silhouette)},
               {"Loss", "loss", offsetof(folder_log, loss)},
               {"Learning rate", "learning rate", offsetof(folder_log, lr)}};
    int rc = 0;
    fputs("<section id=\"curves\" aria-labelledby=\"h-curves\"><h2 id=\"h-curves\">Curves</h2>\n"
          "<div class=\"charts\">\n",
          f);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        TRY(write_overlaid(f, c, all[i].title, all[i].y_name, all[i].offset));
    fputs("</div></section>\n", f);
done:
    return rc;
}

static void write_runs(FILE *f, const comparison *c) {
    fputs(
        "<section id=\"runs\" aria-labelledby=\"h-runs\"><h2 id=\"h-runs\">Runs</h2>\n<div "
        "class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table of runs\"><table "
        "class=\"plain said\"><thead><tr><th scope=\"col\">Run</th><th scope=\"col\">Seed</th><th "
        "scope=\"col\">Epochs</th><th scope=\"col\">ACC</th><th scope=\"col\">Training</th><th "
        "scope=\"col\">Device</th></tr></thead><tbody>\n",
        f);
    for (int r = 0; r < c->n; r++) {
        const folder *one = &c->run[r];
        html_print(f, "<tr><th scope=\"row\">%s</th><td>%d</td><td>%d</td><td>", one->name,
                   one->o.seed, last_epoch(&one->o));
        if (one->log.acc.n)
            fprintf(f, "%.1f", 100 * last(&one->log.acc));
        else
            fputs("&ndash;", f);
        html_print(f, "</td><td>%s%s</td><td>%s</td></tr>\n", html_time(one->log.seconds),
                   one->done ? "" : ", not finished", one->o.device);
    }
    fputs("</tbody></table></div></section>\n", f);
}

static int write_comparison(FILE *f, const folder *run, int n) {
    int rc = 0;
    comparison c = {.run = run, .n = n};
    TRY(find_keys(&c));
    TRY(find_groups(&c));
    average_over_seeds(&c);
    html_print(f,
               "<section id=\"table\" aria-labelledby=\"h-table\"><h1 id=\"h-table\">Comparison "
               "of %d %s</h1>\n<p class=\"lead\">",
               n, n == 1 ? "run" : "runs");
    if (c.by_name)
        fputs("The runs differ in too many settings to name in a table, so each has its own row.",
              f);
    else if (c.n_keys == 0)
        fputs("The runs differ only in their seeds.", f);
    else
        html_print(f, "%d %s of %s%s%s%s; runs in the same row differ only in their seeds.",
                   c.n_groups, c.n_keys > 1 ? "combinations" : "values", c.key[0],
                   c.n_keys > 1 ? ", " : "", c.n_keys > 1 ? c.key[1] : "",
                   c.n_keys > 2 ? " and others" : "");
    fputs(
        "</p>\n<p>Scores of the last evaluation in percent; for several runs the mean &plusmn; the "
        "sample standard deviation. Bold: the best in its column.</p>\n",
        f);
    write_table(f, &c);
    fputs("</section>\n", f);
    TRY(write_figures(f, &c));
    TRY(write_curves(f, &c));
    write_runs(f, &c);
done:
    free(c.group), free(c.of);
    arena_free(&c.memory);
    return rc;
}

/* ---- opening the runs ------------------------------------------------------------------------ */

static bool is_run(const char *folder) {
    char path[PATH_MAX];
    struct stat about;
    snprintf(path, sizeof path, "%s/options.yaml", folder);
    return stat(path, &about) == 0;
}

/* Opens the runs that sweep.json lists, in the folder it is in now: it may have been moved. */
static int add_sweep(const char *path, folder **run, int *n) {
    int rc = 0;
    char file[PATH_MAX], one[2 * PATH_MAX];
    size_t i, j;
    const json_t *combination, *entry;
    snprintf(file, sizeof file, "%s/sweep.json", path);
    json_t *o = json_load_file(file, 0, NULL);
    if (!o)
        TRY(fail(CONR_EFILE,
                 "%s: holds neither a run (options.yaml) nor a sweep (sweep.json); give "
                 "the --out folder of one",
                 path));
    json_array_foreach(json_object_get(o, "combinations"), i, combination) {
        json_array_foreach(json_object_get(combination, "runs"), j, entry) {
            const char *name = json_string_value(json_object_get(entry, "run"));
            const char *slash = name ? strrchr(name, '/') : NULL;
            if (!name || !json_is_null(json_object_get(entry, "error"))) continue;
            snprintf(one, sizeof one, "%s/%s", path, slash ? slash + 1 : name);
            folder *more = realloc(*run, ((size_t)*n + 1) * sizeof *more);
            if (!more) TRY(fail_memory(path, sizeof *more));
            *run = more;
            TRY(folder_open(one, &(*run)[*n]));
            ++*n;
        }
    }
done:
    json_decref(o);
    return rc;
}

int conr_report_compare(conr *c, const char *const *paths, int n_paths, const char *out) {
    static const char nav[] = "table\0Table\0figures\0Figures\0curves\0Curves\0runs\0Runs\0";
    int rc = 0, n = 0;
    folder *run = NULL;
    file_new f = {0};
    folder_lock lock = {0};
    (void)c;
    /* a sweep has its comparison as its report; a run does not */
    TRY(output_check(out, NULL, n_paths == 1 && !is_run(paths[0]) ? paths[0] : NULL));
    for (int i = 0; i < n_paths; i++) {
        if (!is_run(paths[i])) {
            TRY(add_sweep(paths[i], &run, &n));
            continue;
        }
        folder *more = realloc(run, ((size_t)n + 1) * sizeof *more);
        if (!more) TRY(fail_memory(paths[i], sizeof *more));
        run = more;
        TRY(folder_open(paths[i], &run[n]));
        n++;
    }
    if (n == 0) TRY(fail(CONR_EINVAL, "%s: has no finished runs; continue the sweep", paths[0]));
    TRY(folder_lock_beside(out, "options.yaml", &lock));
    TRY(file_new_open(&f, out));
    html_head(f.stream, "Comparison of runs", nav);
    TRY(write_comparison(f.stream, run, n));
    html_foot(f.stream);
    TRY(file_new_commit(&f));
done:
    file_new_drop(&f);
    folder_lock_drop(&lock);
    for (int i = 0; i < n; i++) folder_close(&run[i]);
    free(run);
    return rc;
}
