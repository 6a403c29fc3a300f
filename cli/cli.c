/* cli.c: parses the flags of a verb from its row, and prints its help. */
#include "cli_parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every verb takes these. */
static const flag common[] = {
    {"device", "NAME", "auto", "auto, cpu, cuda, cuda:N (GPU N), or ref (plain loops)"},
    {"threads", "N", "0", "number of threads; 0: all cores"},
    {"seed", "N", "1", "seed of the random numbers"},
    {"json", NULL, NULL, "print one JSON object and nothing else"},
    {"quiet", NULL, NULL, "do not show progress"},
    {"help", NULL, NULL, "print this text"},
    {0},
};

const flag *common_flags(void) { return common; }

enum { MAX_FLAGS = 64 };

struct arguments {
    const verb *verb;
    const flag *flag[MAX_FLAGS];  /* the verb's, then the common ones */
    const char *given[MAX_FLAGS]; /* the last value given, "" for a switch, NULL: not given */
    int n_flags;
    struct {
        int flag;
        const char *value;
    } * all; /* [n_all]: every value that was given, in order */
    int n_all;
    char **operand; /* points into argv */
    int n_operands;
};

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

static int known_flag(const arguments *a, const char *name) {
    int at = flag_index(a, name, strlen(name));
    if (at < 0) abort(); /* a bug: the verb asks for a flag that its row does not have */
    return at;
}

static bool may_repeat(const flag *f) {
    size_t n = f->value ? strlen(f->value) : 0;
    return n > 3 && !strcmp(f->value + n - 3, "...");
}

/* Parses one flag at argv[i]: "--name", "--name=value" or "--name value".  Returns the number of
 * words used, or -1 after a message. */
static int parse_flag(arguments *a, int argc, char **argv, int i) {
    const char *name = argv[i] + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    int at = flag_index(a, name, length);
    if (at < 0)
        return usage_error("--%.*s: no such flag; see conr help %s", (int)length, name,
                           a->verb->name),
               -1;
    if (a->given[at] && !may_repeat(a->flag[at]))
        return usage_error("--%.*s: given twice; give it once", (int)length, name), -1;
    if (!a->flag[at]->value) {
        if (equals)
            return usage_error("--%.*s: takes no value; leave it out", (int)length, name), -1;
        a->given[at] = "";
        return 1;
    }
    if (!equals && i + 1 == argc)
        return usage_error("--%s: needs a value; give --%s %s", name, name, a->flag[at]->value), -1;
    a->given[at] = equals ? equals + 1 : argv[i + 1];
    if (!*a->given[at])
        return usage_error("--%.*s: the value is empty; give --%s %s", (int)length, name,
                           a->flag[at]->name, a->flag[at]->value),
               -1;
    a->all[a->n_all].flag = at;
    a->all[a->n_all++].value = a->given[at];
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
        } else if (!flags_end && !strcmp(argv[i], "-h")) {
            a->given[known_flag(a, "help")] = "";
            i++;
        } else if (!flags_end && argv[i][0] == '-' && argv[i][1]) {
            return usage_error(
                "%s: no such flag, flags start with two dashes; see conr help %s, or "
                "put -- before a file name like this",
                argv[i], a->verb->name);
        } else {
            a->operand[a->n_operands++] = argv[i++];
        }
    }
    if (flag_on(a, "help")) return EXIT_OK;
    const verb *v = a->verb;
    if (a->n_operands < v->low || (v->high >= 0 && a->n_operands > v->high))
        return usage_error("%s: %d operand%s given; use conr %s%s%s", v->name, a->n_operands,
                           a->n_operands == 1 ? "" : "s", v->name, *v->operands ? " " : "",
                           v->operands);
    return EXIT_OK;
}

int verb_run(const verb *v, int argc, char **argv) {
    arguments a = {.verb = v, .all = calloc((size_t)argc + 1, sizeof *a.all)};
    if (!a.all) return failed("%s: out of memory; close other programs", v->name);
    add_flags(&a, v->flags);
    add_flags(&a, common);
    int rc = parse(&a, argc, argv);
    if (rc == EXIT_OK) rc = flag_on(&a, "help") ? verb_help(v) : v->run(&a);
    free(a.all);
    return rc;
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
    printf("conr %s%s%s\n\n%s.\n", v->name, *v->operands ? " " : "", v->operands, v->summary);
    if (v->text) printf("\n%s", v->text);
    if (v->flags) printf("\nFlags:\n");
    print_flags(v->flags);
    printf("\nCommon flags:\n");
    print_flags(common);
    return finish_output();
}

/* ---- what verbs ask for ---------------------------------------------------------------------- */

int operand_count(const arguments *a) { return a->n_operands; }

const char *operand(const arguments *a, int i) { return i < a->n_operands ? a->operand[i] : NULL; }

const char *flag_text(const arguments *a, const char *name) {
    int at = known_flag(a, name);
    return a->given[at] ? a->given[at] : a->flag[at]->initial;
}

bool flag_on(const arguments *a, const char *name) { return a->given[known_flag(a, name)] != NULL; }

const char *flag_nth(const arguments *a, const char *name, int i) {
    int at = known_flag(a, name);
    for (int j = 0; j < a->n_all; j++)
        if (a->all[j].flag == at && i-- == 0) return a->all[j].value;
    return NULL;
}

int flag_number(const arguments *a, const char *name, double low, double high, double *out) {
    const char *text = flag_text(a, name);
    char *end;
    if (!text) return usage_error("--%s: is missing; give a number", name);
    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= low && *out <= high))
        return usage_error("--%s %s: not a number from %g to %g; give one in that range", name,
                           text, low, high);
    return EXIT_OK;
}

int flag_int(const arguments *a, const char *name, long low, long high, int *out) {
    const char *text = flag_text(a, name);
    char *end;
    if (!text) return usage_error("--%s: is missing; give a whole number", name);
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < low || value > high)
        return usage_error("--%s %s: not a whole number from %ld to %ld; give one in that range",
                           name, text, low, high);
    *out = (int)value;
    return EXIT_OK;
}

int flag_seconds(const arguments *a, const char *name, double *out) {
    static const char unit[] = "dhms"; /* in descending order: 1h30m, not 30m1h */
    static const double seconds[] = {86400, 3600, 60, 1};
    const char *text = flag_text(a, name), *at = text;
    if (!text) return usage_error("--%s: is missing; give a time such as 10m", name);
    *out = 0;
    for (int next = 0; isdigit((unsigned char)*at) && next < 4; next++) {
        char *end;
        double value = strtod(at, &end);
        if (!*end) { /* a bare number is in seconds; "1h30" is ambiguous */
            if (next == 0) *out = value, at = end;
            break;
        }
        while (next < 4 && unit[next] != *end) next++;
        if (next == 4) break;
        *out += value * seconds[next];
        at = end + 1;
    }
    if (*at || at == text || !(*out > 0 && *out <= 1e8))
        return usage_error("--%s %s: not a time; give 90s, 10m, 2h, 1h30m or 1d", name, text);
    return EXIT_OK;
}
