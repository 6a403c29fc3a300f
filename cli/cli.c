/* cli.c: parses flags by a verb's row, prints its help, and says errors in one line. */
#include "cli_parse.h"

#include "conr.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

const flag *common_flags(void) { return common; }

enum { MAX_FLAGS = 64 };

struct arguments {
    const verb *verb;
    const flag *flag[MAX_FLAGS];  /* the verb's, then the common ones */
    const char *given[MAX_FLAGS]; /* value as given last, "" for a switch, NULL: not given */
    int n_flags;
    struct {
        int flag;
        const char *value;
    } * all; /* [n_all]: every flag that was given, in order */
    int n_all;
    char **operand; /* points into argv */
    int n_operands;
};

/* Of many processes that fail by the same mistake the first speaks, and its end is the end of all;
 * the others give it time.  Only who fails alone is heard. */
static FILE *errors_to;

void be_silent(void) {
    FILE *nowhere = fopen("/dev/null", "w");
    if (!nowhere) return;
    errors_to = stderr;
    stderr = stdout = nowhere;
}

static FILE *last_words(void) {
    FILE *to = errors_to ? errors_to : stderr;
    progress_end();
    /* woken by a signal: another has spoken, and the launcher ends us */
    if (errors_to && nanosleep(&(struct timespec){.tv_sec = 2}, NULL)) _exit(EXIT_FAILED);
    fputs("conr: ", to);
    if (errors_to) fprintf(to, "rank %d: ", conr_rank(NULL));
    return to;
}

static void print_error(const char *format, va_list args) {
    FILE *to = last_words();
    vfprintf(to, format, args);
    fputc('\n', to);
}

int usage_error(const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_error(format, args);
    va_end(args);
    return EXIT_USAGE;
}

int failed(const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_error(format, args);
    va_end(args);
    return EXIT_FAILED;
}

int library_error(void) {
    fprintf(last_words(), "%s\n", conr_error());
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

static int known_flag(const arguments *a, const char *name) {
    int at = flag_index(a, name, strlen(name));
    if (at < 0) abort(); /* the verb asks for a flag that its row does not have */
    return at;
}

static bool may_repeat(const flag *f) {
    size_t n = f->value ? strlen(f->value) : 0;
    return n > 3 && !strcmp(f->value + n - 3, "...");
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
    if (a->given[at] && !may_repeat(a->flag[at]))
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
    if (!*a->given[at])
        return usage_error("--%.*s: its value is empty; give --%s %s", (int)length, name,
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
            return usage_error("%s: no such flag, they begin with two dashes; see conr help %s, or "
                               "give -- before a name like this",
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
    if (!a.all) return failed("%s: no memory for its flags; close other programs", v->name);
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

int flag_seconds(const arguments *a, const char *name, double *out) {
    static const char unit[] = "dhms"; /* they descend: 1h30m, not 30m1h */
    static const double seconds[] = {86400, 3600, 60, 1};
    const char *text = flag_text(a, name), *at = text;
    if (!text) return usage_error("--%s: is missing; give a time such as 10m", name);
    *out = 0;
    for (int next = 0; isdigit((unsigned char)*at) && next < 4; next++) {
        char *end;
        double value = strtod(at, &end);
        if (!*end) { /* a bare number is seconds; "1h30" could mean two things */
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

/* ---- texts ----------------------------------------------------------------------------------- */

void print_name(const char *name) {
    for (; *name; name++) putchar(iscntrl((unsigned char)*name) ? '?' : *name);
}

json_t *json_name(const char *name) {
    json_t *text = json_string(name);
    if (text) return text;
    size_t n = strlen(name);
    char *plain = malloc(n + 1);
    if (!plain) return json_null();
    for (size_t i = 0; i <= n; i++) plain[i] = (unsigned char)name[i] < 128 ? name[i] : '?';
    text = json_string(plain);
    free(plain);
    return text;
}

json_t *json_number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

const char *time_text(double seconds, char *out) {
    long s = seconds > 0 ? lround(fmin(seconds, 1e9)) : 0;
    if (seconds < 9.95)
        snprintf(out, 32, "%.1f s", seconds > 0 ? seconds : 0);
    else if (s < 100)
        snprintf(out, 32, "%ld s", s);
    else if (s < 100 * 60)
        snprintf(out, 32, "%ld min", (s + 30) / 60);
    else if (s < 48 * 3600)
        snprintf(out, 32, "%ld h %ld min", s / 3600, s % 3600 / 60);
    else
        snprintf(out, 32, "%ld d %ld h", s / 86400, s % 86400 / 3600);
    return out;
}

const char *rate_text(double rate, char *out) {
    if (rate < 1000)
        snprintf(out, 32, rate < 10 ? "%.1f" : "%.0f", rate);
    else
        snprintf(out, 32, rate < 1e5 ? "%.1fk" : "%.0fk", rate / 1000);
    return out;
}

static void *must(void *p) {
    if (p) return p;
    fputs("conr: a path: no memory; close other programs\n", stderr);
    exit(EXIT_FAILED);
}

char *shell_word(const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=,+@%:";
    char *out = must(malloc(4 * strlen(word) + 3)), *to = out;
    if (*word && strspn(word, plain) == strlen(word)) return strcpy(out, word);
    *to++ = '\'';
    for (; *word; word++) {
        if (*word == '\'')
            to = stpcpy(to, "'\\''");
        else
            *to++ = *word;
    }
    strcpy(to, "'");
    return out;
}

char *path_in(const char *folder, const char *name) {
    size_t n = strlen(folder);
    char *out = must(malloc(n + strlen(name) + 2));
    sprintf(out, "%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", name);
    return out;
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
