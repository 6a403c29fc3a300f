/* recipes.c: conr recipes: the recipes that come with the program, and what is known about each.
 *
 * All of it is in the comments that a recipe opens with: what it is, `expected`, `reached`, and the
 * command. */
#include "cli.h"

#include "share.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One recipe as its first comments describe it; texts end in 0. */
typedef struct head {
    char about[1024], expected[1024], reached[1024];
} head;

/* Appends a line to a text.  What does not fit is left out. */
static void append(char text[1024], const char *line) {
    size_t n = strlen(text);
    snprintf(text + n, 1024 - n, "%s%s", n ? "\n" : "", line);
}

/* The words after "# KEY ", or NULL. */
static const char *after(const char *line, const char *key) {
    size_t n = strlen(key);
    if (strncmp(line, key, n) || line[n] != ' ') return NULL;
    return line + n + strspn(line + n, " ");
}

/* Reads the comments at the head of a recipe.  0, or EXIT_FAILED after a message. */
static int read_head(const char *path, head *h) {
    FILE *f = fopen(path, "r");
    char *line = NULL, *now = h->about;
    size_t room = 0;
    *h = (head){0};
    if (!f) return failed("%s: %s; install conr again", path, strerror(errno));
    while (getline(&line, &room, f) > 1 && line[0] == '#' && line[1] == ' ') {
        const char *words = line + 2, *rest;
        line[strcspn(line, "\r\n")] = 0;
        if ((rest = after(words, "expected"))) {
            append(now = h->expected, rest);
        } else if ((rest = after(words, "reached"))) {
            append(now = h->reached, rest);
        } else if (now == h->about) {
            append(now, words);
        } else if (*words == ' ') { /* goes on with `expected` or `reached` */
            append(now, words + strspn(words, " "));
        } else {
            break;
        }
    }
    free(line);
    fclose(f);
    return EXIT_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of all recipes, sorted; each and the list are owned by the caller.  0, or EXIT_FAILED
 * after a message. */
static int list_names(const char *folder, char ***out, size_t *n) {
    DIR *d = opendir(folder);
    const struct dirent *e;
    *out = NULL, *n = 0;
    if (!d) return failed("%s: %s; install conr again", folder, strerror(errno));
    while ((e = readdir(d))) {
        size_t length = strlen(e->d_name);
        if (length < 6 || e->d_name[0] == '.' || strcmp(e->d_name + length - 5, ".yaml")) continue;
        char **more = realloc(*out, (*n + 1) * sizeof **out);
        char *name = more ? strndup(e->d_name, length - 5) : NULL;
        if (more) *out = more;
        if (!name) return closedir(d), failed("recipes: out of memory; close other programs");
        (*out)[(*n)++] = name;
    }
    closedir(d);
    if (*n) qsort(*out, *n, sizeof **out, by_name);
    return EXIT_OK;
}

/* What it is, in short: as far as the first colon or the end of the sentence. */
static void print_title(const char *text) {
    const char *end = text;
    while (*end && *end != ':' && !(*end == '.' && (!end[1] || isspace((unsigned char)end[1]))))
        end++;
    for (; text < end; text++) putchar(*text == '\n' ? ' ' : *text);
    putchar('\n');
}

/* The lines as they stand in the recipe, with a key before the first one. */
static void print_lines(const char *key, const char *text) {
    printf("    %-9s ", key);
    for (; *text; text++)
        if (*text == '\n')
            printf("\n%14s", "");
        else
            putchar(*text);
    putchar('\n');
}

static int print_all(const char *folder, bool json) {
    char **names;
    size_t n;
    head h;
    int rc = list_names(folder, &names, &n);
    json_t *rows = json && rc == EXIT_OK ? json_array() : NULL;
    for (size_t i = 0; i < n && rc == EXIT_OK; i++) {
        char *path = share_recipe(names[i]);
        rc = path ? read_head(path, &h) : failed("%s: is gone; run it again", names[i]);
        if (rc == EXIT_OK && json) {
            rows = json_push(rows, json_pack("{ss so ss ss ss}", "name", names[i], "path",
                                             json_name(path), "about", h.about, "expected",
                                             h.expected, "reached", h.reached));
        } else if (rc == EXIT_OK) {
            printf("%-18s ", names[i]);
            print_title(h.about);
            print_lines("expected", h.expected);
            print_lines("reached", h.reached);
        }
        free(path);
    }
    for (size_t i = 0; i < n; i++) free(names[i]);
    free(names);
    if (rc != EXIT_OK) return json_decref(rows), rc;
    return json ? print_json(json_pack("{so}", "recipes", rows)) : finish_output();
}

static int print_file(const char *path) {
    FILE *f = fopen(path, "r");
    char bytes[4096];
    size_t n;
    if (!f) return failed("%s: %s; install conr again", path, strerror(errno));
    while ((n = fread(bytes, 1, sizeof bytes, f)) > 0) fwrite(bytes, 1, n, stdout);
    fclose(f);
    return finish_output();
}

static int run(const arguments *a) {
    const char *name = operand(a, 0);
    char *path = name ? share_recipe(name) : share_path("recipes");
    int rc;
    if (!path && name) return failed("%s: no recipe of this name; conr recipes lists them", name);
    if (!path) return failed("recipes: were not installed with the program; install conr again");
    rc = name ? print_file(path) : print_all(path, flag_on(a, "json"));
    free(path);
    return rc;
}

const verb verb_recipes = {
    .name = "recipes",
    .operands = "[NAME]",
    .summary = "List the recipes: what each trains, what is expected, what was reached",
    .text = "--recipe takes such a name, or a file of your own.  With NAME, prints that recipe.\n"
            "\nExample: conr recipes\n"
            "         conr recipes cifar10 >mine.yaml\n",
    .high = 1,
    .run = run,
};
