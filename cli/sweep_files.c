/* sweep_files.c: what a sweep writes: sweep.json and the table. */
#include "sweep.h"

#include "progress.h"
#include "run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SHORT = JSON_ENCODE_ANY | JSON_REAL_PRECISION(9) }; /* JSON within a message */

/* Columns of the table, if the runs have them: without labels only the last two. */
static const char *const scores_of[] = {"nmi", "acc",        "ari",
                                        "knn", "silhouette", "neighbor_agreement"};
static const char *const titles[] = {"NMI", "ACC", "ARI", "20-NN", "silhouette", "agreement"};
enum { N_SCORES = 6 };

/* ---- sweep.json ------------------------------------------------------------------------------ */

static int replace_file(const char *folder, const char *name, const char *text) {
    char *path = path_in(folder, name);
    int rc = conr_write_bytes(path, text, (int64_t)strlen(text)) < 0 ? library_error() : EXIT_OK;
    free(path);
    return rc;
}

int sweep_save(const sweep *w) {
    char *text = json_write(w->report, JSON_INDENT(2));
    if (!text) return failed("sweep.json: out of memory; close other programs");
    int rc = replace_file(w->out, "sweep.json", text);
    free(text);
    return rc;
}

/* Runs that already exist must have been made with the same settings. */
static int check_shared(const sweep *w, const json_t *settings, const char *from) {
    char *path = path_in(w->out, "sweep.json");
    json_t *old = json_load_file(path, 0, NULL);
    const json_t *before = json_object_get(old, "settings"), *value;
    const char *key, *old_from = json_string_value(json_object_get(old, "from"));
    int rc = EXIT_OK;
    json_object_foreach((json_t *)before, key, value) {
        const json_t *now = json_object_get(settings, key);
        bool own = !strcmp(key, "seed") || !strcmp(key, "version") || !strcmp(key, "device");
        if (!now || own || json_equal(now, value)) continue;
        char *a = json_write(value, SHORT), *b = json_write(now, SHORT);
        rc = failed("%s: its runs have %s %s, not %s; give another --out", w->out, key,
                    a ? a : "another value", b ? b : "this one");
        free(a);
        free(b);
        break;
    }
    if (rc == EXIT_OK && old && strcmp(old_from ? old_from : "", from ? from : ""))
        rc = failed("%s: its runs start from %s; give another --out", w->out,
                    old_from ? old_from : "nothing");
    json_decref(old);
    free(path);
    return rc;
}

/* What all runs share, except for the keys of the grid. */
static json_t *shared_settings(const sweep *w) {
    static const char *const words[] = {"method", "refine"};
    json_t *out = recipe_json(w->base);
    for (size_t i = 0; i < sizeof words / sizeof *words && w->of_features; i++) {
        const char *given = flag_text(w->a, words[i]);
        bool varies = false;
        for (int j = 0; j < w->n_axes; j++) varies = varies || !strcmp(w->axis[j].key, words[i]);
        if (!varies) out = json_put(out, words[i], json_string(given ? given : "auto"));
    }
    return out;
}

int sweep_begin(sweep *w) {
    json_t *grid = json_object(), *settings = shared_settings(w);
    const char *from = w->options.from, *data = flag_text(w->a, "data");
    if (w->of_features) from = flag_text(w->a, "features"); /* runs of others are refused */
    run_make_parents(w->out);
    if (mkdir(w->out, 0777) && errno != EEXIST) {
        json_decref(grid);
        json_decref(settings);
        return failed("%s: %s; give a folder that can be created", w->out, strerror(errno));
    }
    for (int i = 0; i < w->n_axes; i++) {
        json_t *values = json_array();
        for (int j = 0; j < w->axis[i].n; j++)
            values = json_push(values, json_name(w->axis[i].value[j]));
        grid = json_put(grid, w->axis[i].key, values);
    }
    int rc = check_shared(w, settings, from);
    w->report =
        json_pack("{ss so so so si si so so}", "version", conr_version(), "data",
                  data ? json_name(data) : json_null(), "from",
                  from ? json_name(from) : json_null(), "grid", grid, "seeds", w->seeds,
                  "first_seed", w->seed, "settings", settings, "combinations", json_array());
    if (!w->report) return failed("sweep.json: out of memory; close other programs");
    /* written first: what all runs will share */
    return rc == EXIT_OK && !run_has(w->out, "sweep.json") ? sweep_save(w) : rc;
}

int sweep_add_means(json_t *combination) {
    const json_t *runs = json_object_get(combination, "runs"), *r;
    json_t *mean = json_object(), *deviation = json_object();
    size_t at;
    for (int i = 0; i < N_SCORES; i++) {
        double sum = 0, squares = 0;
        int n = 0;
        json_array_foreach(runs, at, r) {
            const json_t *x = json_object_get(json_object_get(r, "scores"), scores_of[i]);
            if (json_is_number(x)) sum += json_number_value(x), n++;
        }
        json_array_foreach(runs, at, r) {
            const json_t *x = json_object_get(json_object_get(r, "scores"), scores_of[i]);
            if (json_is_number(x)) squares += pow(json_number_value(x) - sum / n, 2);
        }
        if (n == 0) continue;
        mean = json_put(mean, scores_of[i], json_number(sum / n));
        deviation = json_put(deviation, scores_of[i],
                             n > 1 ? json_number(sqrt(squares / (n - 1))) : json_null());
    }
    /* both are tried, since both have to be released */
    bool short_of = json_object_set_new(combination, "mean", mean) < 0;
    if (json_object_set_new(combination, "deviation", deviation) < 0 || short_of)
        return failed("sweep.json: out of memory; close other programs");
    return EXIT_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

static bool is_shown(const sweep *w, int score) {
    const json_t *entry;
    size_t at;
    json_array_foreach(json_object_get(w->report, "combinations"), at, entry) {
        if (json_object_get(json_object_get(entry, "mean"), scores_of[score])) return true;
    }
    return false;
}

/* How many of its runs succeeded. */
static int count_runs(const json_t *entry) {
    const json_t *run;
    size_t j;
    int n = 0;
    json_array_foreach(json_object_get(entry, "runs"), j, run) {
        n += json_is_null(json_object_get(run, "error"));
    }
    return n;
}

static void write_cell(FILE *f, const json_t *entry, const char *score) {
    const json_t *mean = json_object_get(json_object_get(entry, "mean"), score);
    const json_t *deviation = json_object_get(json_object_get(entry, "deviation"), score);
    char cell[64] = "-";
    if (mean && json_is_number(deviation))
        snprintf(cell, sizeof cell, "%.4f +- %.4f", json_number_value(mean),
                 json_number_value(deviation));
    else if (mean)
        snprintf(cell, sizeof cell, "%.4f", json_number_value(mean));
    fprintf(f, "| %-16s ", cell);
}

/* Markdown, aligned so that it also reads well as plain text. */
static void write_table(const sweep *w, FILE *f) {
    const json_t *entry;
    size_t at;
    int columns = w->n_axes + 1;
    for (int i = 0; i < w->n_axes; i++) fprintf(f, "| %-12s ", w->axis[i].key);
    fprintf(f, "| runs ");
    for (int i = 0; i < N_SCORES; i++)
        if (is_shown(w, i)) fprintf(f, "| %-16s ", titles[i]), columns++;
    fputs("|\n", f);
    for (int i = 0; i < columns; i++) fputs("|---", f);
    fputs("|\n", f);
    json_array_foreach(json_object_get(w->report, "combinations"), at, entry) {
        for (int i = 0; i < w->n_axes; i++) fprintf(f, "| %-12s ", sweep_value(w, (int)at, i));
        fprintf(f, "| %4d ", count_runs(entry));
        for (int i = 0; i < N_SCORES; i++)
            if (is_shown(w, i)) write_cell(f, entry, scores_of[i]);
        fputs("|\n", f);
    }
}

/* A cell of CSV, quoted if it has to be. */
static void write_quoted(FILE *f, const char *text) {
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, f);
        return;
    }
    fputc('"', f);
    for (; *text; text++) fprintf(f, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', f);
}

/* Numbers in full, for other programs: nmi and nmi_deviation, ...; empty where there is none. */
static void write_csv(const sweep *w, FILE *f) {
    const json_t *entry, *value;
    size_t at;
    for (int i = 0; i < w->n_axes; i++) write_quoted(f, w->axis[i].key), fputc(',', f);
    fputs("runs", f);
    for (int i = 0; i < N_SCORES; i++)
        if (is_shown(w, i)) fprintf(f, ",%s,%s_deviation", scores_of[i], scores_of[i]);
    fputc('\n', f);
    json_array_foreach(json_object_get(w->report, "combinations"), at, entry) {
        for (int i = 0; i < w->n_axes; i++)
            write_quoted(f, sweep_value(w, (int)at, i)), fputc(',', f);
        fprintf(f, "%d", count_runs(entry));
        for (int i = 0; i < N_SCORES; i++) {
            if (!is_shown(w, i)) continue;
            for (int j = 0; j < 2; j++) {
                value =
                    json_object_get(json_object_get(entry, j ? "deviation" : "mean"), scores_of[i]);
                fputc(',', f);
                if (json_is_number(value)) fprintf(f, "%.9g", json_number_value(value));
            }
        }
        fputc('\n', f);
    }
}

/* Text for LaTeX: its special characters as text. */
static void write_escaped(FILE *f, const char *text) {
    for (; *text; text++) {
        if (*text == '\\' || *text == '~' || *text == '^')
            fprintf(f, "\\char%d{}", *text);
        else
            fprintf(f, strchr("#$%&_{}", *text) ? "\\%c" : "%c", *text);
    }
}

/* A tabular, in percent with one digit, as papers have it; the agreement and the silhouette, too. */
static void write_latex(const sweep *w, FILE *f) {
    const json_t *entry, *mean, *deviation;
    size_t at;
    fputs("\\begin{tabular}{", f);
    for (int i = 0; i < w->n_axes; i++) fputc('l', f);
    fputc('r', f);
    for (int i = 0; i < N_SCORES; i++)
        if (is_shown(w, i)) fputc('c', f);
    fputs("}\n\\hline\n", f);
    for (int i = 0; i < w->n_axes; i++) write_escaped(f, w->axis[i].key), fputs(" & ", f);
    fputs("runs", f);
    for (int i = 0; i < N_SCORES; i++)
        if (is_shown(w, i)) fprintf(f, " & %s", titles[i]);
    fputs(" \\\\\n\\hline\n", f);
    json_array_foreach(json_object_get(w->report, "combinations"), at, entry) {
        for (int i = 0; i < w->n_axes; i++)
            write_escaped(f, sweep_value(w, (int)at, i)), fputs(" & ", f);
        fprintf(f, "%d", count_runs(entry));
        for (int i = 0; i < N_SCORES; i++) {
            if (!is_shown(w, i)) continue;
            mean = json_object_get(json_object_get(entry, "mean"), scores_of[i]);
            deviation = json_object_get(json_object_get(entry, "deviation"), scores_of[i]);
            fputs(" & ", f);
            if (!mean)
                fputs("--", f);
            else if (json_is_number(deviation))
                fprintf(f, "$%.1f \\pm %.1f$", 100 * json_number_value(mean),
                        100 * json_number_value(deviation));
            else
                fprintf(f, "$%.1f$", 100 * json_number_value(mean));
        }
        fputs(" \\\\\n", f);
    }
    fputs("\\hline\n\\end{tabular}\n", f);
}

/* Writes one form of the table; *text, if asked for, is owned by the caller. */
static int write_form(const sweep *w, const char *name, void (*form)(const sweep *, FILE *),
                      char **text) {
    char *made = NULL;
    size_t size;
    FILE *f = open_memstream(&made, &size);
    if (f) form(w, f);
    int rc = !f || fclose(f) ? failed("%s: out of memory; close other programs", name)
                             : replace_file(w->out, name, made);
    if (text)
        *text = made;
    else
        free(made);
    return rc;
}

int sweep_finish(sweep *w) {
    char *text = NULL;
    int rc = write_form(w, "table.md", write_table, &text);
    if (rc == EXIT_OK) rc = write_form(w, "table.csv", write_csv, NULL);
    if (rc == EXIT_OK) rc = write_form(w, "table.tex", write_latex, NULL);
    progress_end();
    if (rc == EXIT_OK && flag_on(w->a, "json")) {
        rc = print_json(json_incref(w->report));
    } else if (rc == EXIT_OK) {
        fputs(text, stdout);
        rc = finish_output();
    }
    free(text);
    if (rc == EXIT_OK && w->n_failed)
        rc = failed("%s: %d of %d runs failed; sweep.json says why", w->out, w->n_failed,
                    w->n_combinations * w->seeds);
    return rc;
}
