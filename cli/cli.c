/* cli.c: parses flags by a verb's row, prints its help, and says errors in one line. */
#include "cli_parse.h"

#include "conr.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every verb takes these. */
static const flag common[] = {
    {"device", "NAME", "auto", "auto, cpu or ref"},
    {"threads", "N", "0", "threads to use; 0: all cores"},
    {"seed", "N", "1", "where randomness starts"},
    {"json", NULL, NULL, "print one JSON object and nothing else"},
    {"quiet", NULL, NULL, "no progress line"},
    {"help", NULL, NULL, "this text"},
    {0},
};

enum { MAX_FLAGS = 64 };

struct arguments {
    const verb *verb;
    const flag *flag[MAX_FLAGS];  /* the verb's, then the common ones */
    const char *given[MAX_FLAGS]; /* value as given, "" for a switch, NULL: not given */
    int n_flags;
    char **operand; /* points into argv */
    int n_operands;
};

int usage_error(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("conr: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return EXIT_USAGE;
}

int library_error(void) {
    progress_end();
    fprintf(stderr, "conr: %s\n", conr_error());
    return was_interrupted() ? EXIT_INTERRUPTED : EXIT_FAILED;
}

/* ---- parsing --------------------------------------------------------------------------------- */

static void add_flags(arguments *a, const flag *list) {
    for (; list && list->name; list++)
        if (a->n_flags < MAX_FLAGS) a->flag[a->n_flags++] = list;
}

static int flag_index(const arguments *a, const char *name, size_t length) {
    for (int i = 0; i < a->n_flags; i++)
        if (strlen(a->flag[i]->name) == length && !strncmp(a->flag[i]->name, name, length))
            return i;
    return -1;
}

/* Takes one flag at argv[i], "--name", "--name=value" or "--name value"; returns how many words it
 * took, or -1 after a message. */
static int parse_flag(arguments *a, int argc, char **argv, int i) {
    const char *name = argv[i] + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    int at = flag_index(a, name, length);
    if (at < 0)
        return usage_error("--%.*s: no such flag; see conr help %s", (int)length, name,
                           a->verb->name),
               -1;
    if (a->given[at])
        return usage_error("--%.*s: given twice; give it once", (int)length, name), -1;
    if (!a->flag[at]->value) {
        if (equals)
            return usage_error("--%.*s: takes no value; leave it out", (int)length, name), -1;
        a->given[at] = "";
        return 1;
    }
    if (!equals && i + 1 == argc)
        return usage_error("--%s: lacks its value; give --%s %s", name, name, a->flag[at]->value),
               -1;
    a->given[at] = equals ? equals + 1 : argv[i + 1];
    return equals ? 1 : 2;
}

static int parse(arguments *a, int argc, char **argv) {
    bool flags_end = false;
    a->operand = argv; /* operands are moved to the front */
    for (int i = 0; i < argc;) {
        if (!flags_end && !strcmp(argv[i], "--")) {
            flags_end = true;
            i++;
        } else if (!flags_end && !strncmp(argv[i], "--", 2)) {
            int taken = parse_flag(a, argc, argv, i);
            if (taken < 0) return EXIT_USAGE;
            i += taken;
        } else {
            a->operand[a->n_operands++] = argv[i++];
        }
    }
    if (flag_on(a, "help")) return EXIT_OK;
    const verb *v = a->verb;
    if (a->n_operands < v->low || (v->high >= 0 && a->n_operands > v->high))
        return usage_error("%s: %d operand%s given; use conr %s %s", v->name, a->n_operands,
                           a->n_operands == 1 ? "" : "s", v->name, v->operands);
    return EXIT_OK;
}

int verb_run(const verb *v, int argc, char **argv) {
    arguments a = {.verb = v};
    add_flags(&a, v->flags);
    add_flags(&a, common);
    int rc = parse(&a, argc, argv);
    if (rc != EXIT_OK) return rc;
    if (flag_on(&a, "help")) return verb_help(v);
    return v->run(&a);
}

/* ---- help ------------------------------------------------------------------------------------ */

static void print_flags(const flag *list) {
    for (; list && list->name; list++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", list->name, list->value ? " " : "",
                 list->value ? list->value : "");
        printf("  %-22s %s", left, list->help);
        if (list->initial && *list->initial) printf(" [%s]", list->initial);
        putchar('\n');
    }
}

int verb_help(const verb *v) {
    printf("conr %s %s\n\n%s.\n", v->name, v->operands, v->summary);
    if (v->text) printf("\n%s", v->text);
    if (v->flags) printf("\nFlags:\n");
    print_flags(v->flags);
    printf("\nCommon flags:\n");
    print_flags(common);
    return finish_output();
}

/* ---- what verbs ask -------------------------------------------------------------------------- */

int operand_count(const arguments *a) { return a->n_operands; }

const char *operand(const arguments *a, int i) { return i < a->n_operands ? a->operand[i] : NULL; }

static int known_flag(const arguments *a, const char *name) {
    int at = flag_index(a, name, strlen(name));
    if (at < 0) abort(); /* the verb asks for a flag that its row does not have */
    return at;
}

const char *flag_text(const arguments *a, const char *name) {
    int at = known_flag(a, name);
    return a->given[at] ? a->given[at] : a->flag[at]->initial;
}

bool flag_on(const arguments *a, const char *name) { return a->given[known_flag(a, name)] != NULL; }

int flag_number(const arguments *a, const char *name, double low, double high, double *out) {
    const char *text = flag_text(a, name);
    char *end;
    if (!text) return usage_error("--%s: is missing; give a number", name);
    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= low && *out <= high))
        return usage_error("--%s %s: not a number from %g to %g; correct it", name, text, low,
                           high);
    return EXIT_OK;
}

int flag_int(const arguments *a, const char *name, long low, long high, int *out) {
    const char *text = flag_text(a, name);
    char *end;
    if (!text) return usage_error("--%s: is missing; give a whole number", name);
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < low || value > high)
        return usage_error("--%s %s: not a whole number from %ld to %ld; correct it", name, text,
                           low, high);
    *out = (int)value;
    return EXIT_OK;
}

/* ---- output ---------------------------------------------------------------------------------- */

int finish_output(void) {
    progress_end();
    if (!fflush(stdout) && !ferror(stdout)) return EXIT_OK;
    fprintf(stderr, "conr: standard output: %s; give it a place that takes it\n", strerror(errno));
    return EXIT_FAILED;
}

int print_json(json_t *object) {
    if (!object) {
        fprintf(stderr, "conr: JSON: no memory; close other programs\n");
        return EXIT_FAILED;
    }
    json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(object);
    return finish_output();
}
