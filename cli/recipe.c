/* recipe.c: the settings of a training, from a recipe and flags, as text and JSON. */
#include "recipe.h"

#include "share.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int pair_key(const char *flag, const char *pair) {
    const char *equals = strchr(pair, '=');
    if (equals && equals > pair && equals - pair < SETTING_SIZE) return (int)(equals - pair);
    return usage_error("--%s %s: not a setting; give key=value", flag, pair), -1;
}

static int set(conr_settings *s, const char *key, const char *value) {
    return conr_settings_set(s, key, value) < 0 ? library_error() : EXIT_OK;
}

int recipe_read(const arguments *a, conr_settings *s) {
    const char *given = flag_text(a, "recipe");
    struct stat about;
    if (!given) return EXIT_OK;
    /* a file of the user goes first; a folder of that name, as make demo leaves one, does not */
    bool none = stat(given, &about) < 0, is_file = !none && !S_ISDIR(about.st_mode);
    char *ours = is_file ? NULL : share_recipe(given);
    int rc = EXIT_OK;
    if (!ours && none && !strpbrk(given, "/."))
        rc =
            failed("--recipe %s: no recipe of this name, and no such file; conr recipes lists them",
                   given);
    else if (conr_settings_read(s, ours ? ours : given) < 0)
        rc = library_error();
    free(ours);
    return rc;
}

int recipe_clusters(const char *text, conr_settings *s) {
    int low, high, end = 0;
    char number[32];
    if (sscanf(text, "auto:%9d-%9d%n", &low, &high, &end) == 2 && !text[end]) {
        if (low < 1 || low >= high)
            return usage_error("--clusters %s: not a range; give auto:LOW-HIGH, 1 <= LOW < HIGH",
                               text);
        int rc;
        snprintf(number, sizeof number, "%d", low);
        if ((rc = set(s, "clusters_low", number))) return rc;
        snprintf(number, sizeof number, "%d", high);
        if ((rc = set(s, "clusters_high", number))) return rc;
        text = "auto";
    }
    if (!strcmp(text, "auto")) return set(s, "clusters", "0");
    if (!*text || text[strspn(text, "0123456789")] || strlen(text) > 9 || atol(text) < 1)
        return usage_error("--clusters %s: not a positive number; give one, auto or auto:LOW-HIGH",
                           text);
    return set(s, "clusters", text);
}

int recipe_flags(const arguments *a, conr_settings *s) {
    static const char *const pairs[][2] = {{"split", "split"},
                                           {"labels", "labels"},
                                           {"classes", "classes"},
                                           {"long-tail", "long_tail"},
                                           {"seed", "seed"}};
    int rc = EXIT_OK;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && rc == EXIT_OK; i++)
        if (flag_on(a, pairs[i][0])) rc = set(s, pairs[i][1], flag_text(a, pairs[i][0]));
    if (rc == EXIT_OK && flag_on(a, "clusters")) rc = recipe_clusters(flag_text(a, "clusters"), s);
    return rc;
}

int recipe_sets(const arguments *a, conr_settings *s) {
    int rc = EXIT_OK;
    const char *pair;
    for (int i = 0; rc == EXIT_OK && (pair = flag_nth(a, "set", i)); i++) {
        char key[SETTING_SIZE];
        int n = pair_key("set", pair);
        if (n < 0) return EXIT_USAGE;
        snprintf(key, sizeof key, "%.*s", n, pair);
        rc = set(s, key, pair + n + 1);
    }
    return rc;
}

int recipe_fill(const arguments *a, conr_settings *s) {
    int rc = recipe_read(a, s);
    if (rc == EXIT_OK) rc = recipe_flags(a, s);
    return rc == EXIT_OK ? recipe_sets(a, s) : rc;
}

bool recipe_names(const arguments *a, const char *key) {
    const char *pair;
    size_t n = strlen(key);
    for (int i = 0; (pair = flag_nth(a, "set", i)); i++)
        if (!strncmp(pair, key, n) && pair[n] == '=') return true;
    return false;
}

/* ---- single settings ------------------------------------------------------------------------- */

const char *setting_text(const conr_settings *s, const char *key, char *out) {
    if (conr_settings_get(s, key, out, SETTING_SIZE) < 0) abort(); /* a bug: no such key */
    return out;
}

double setting_number(const conr_settings *s, const char *key) {
    char text[SETTING_SIZE];
    return strtod(setting_text(s, key, text), NULL);
}

void setting_put(conr_settings *s, const char *key, const char *format, ...) {
    char text[SETTING_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (conr_settings_set(s, key, text) < 0) {
        fprintf(stderr, "conr: %s; this is a bug\n", conr_error());
        abort();
    }
}

void recipe_images(const conr_settings *s, char *texts, conr_images_options *out) {
    char labels[SETTING_SIZE];
    *out = conr_images_defaults();
    out->split = setting_text(s, "split", texts);
    out->classes = setting_text(s, "classes", texts + SETTING_SIZE);
    if (!*out->split) out->split = NULL;
    if (!*out->classes) out->classes = NULL;
    out->coarse = !strcmp(setting_text(s, "labels", labels), "coarse");
    out->long_tail = setting_number(s, "long_tail");
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* The value with the type that the list of settings gives it. */
static json_t *value_json(const char *allowed, const char *text) {
    char *end;
    if (!strcmp(allowed, "true|false")) return json_boolean(!strcmp(text, "true"));
    double number = strtod(text, &end);
    if (end == text || *end || strchr(allowed, '|') || !strcmp(allowed, "text"))
        return json_name(text);
    return strpbrk(text, ".eE") ? json_real(number) : json_integer((json_int_t)number);
}

json_t *recipe_json(const conr_settings *s) {
    json_t *out = json_object();
    conr_setting_info i;
    char text[SETTING_SIZE];
    for (int k = 0; conr_setting(k, &i); k++)
        out = json_put(out, i.key, value_json(i.allowed, setting_text(s, i.key, text)));
    return out;
}

/* Free text is quoted, as YAML requires. */
static void print_setting(const conr_setting_info *i, const char *text) {
    printf("%s: ", i->key);
    if (strcmp(i->allowed, "text")) {
        puts(text);
        return;
    }
    putchar('"');
    for (; *text; text++) {
        if (iscntrl((unsigned char)*text))
            printf("\\x%02x", (unsigned char)*text);
        else
            printf(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    puts("\"");
}

void recipe_print(const conr_settings *s) {
    conr_setting_info i;
    char text[SETTING_SIZE];
    for (int k = 0; conr_setting(k, &i); k++) print_setting(&i, setting_text(s, i.key, text));
}

void recipe_print_changed(const conr_settings *s) {
    conr_setting_info i;
    char text[SETTING_SIZE];
    for (int k = 0; conr_setting(k, &i); k++) {
        if (!strcmp(setting_text(s, i.key, text), i.initial)) continue;
        printf("    ");
        print_setting(&i, text);
    }
}

/* Escapes bars, which would end the cell. */
static int print_cell(const char *text, int width) {
    int n = 0;
    printf("| ");
    for (; *text; text++) n += printf(*text == '|' ? "\\|" : "%c", *text);
    return printf("%*s ", n < width ? width - n : 0, "");
}

int recipe_print_list(bool json) {
    conr_setting_info i;
    json_t *rows = json ? json_array() : NULL;
    if (!json) {
        printf("| %-20s | %-20s | %-26s | what it is |\n", "setting", "default", "allowed");
        puts("|---|---|---|---|");
    }
    for (int k = 0; conr_setting(k, &i); k++) {
        if (json) {
            rows = json_push(rows, json_pack("{ss so ss ss}", "key", i.key, "default",
                                             value_json(i.allowed, i.initial), "allowed", i.allowed,
                                             "help", i.help));
            continue;
        }
        char key[SETTING_SIZE];
        snprintf(key, sizeof key, "`%s`", i.key);
        print_cell(key, 20);
        print_cell(i.initial, 20);
        print_cell(i.allowed, 26);
        print_cell(i.help, 0);
        puts("|");
    }
    return json ? print_json(json_pack("{so}", "settings", rows)) : finish_output();
}
