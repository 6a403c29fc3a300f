/* cli.h: what the verbs of the program share: flags, help, errors, JSON.
 *
 * A verb is a row: its name, flags, help and function.  Parsing, `--help`, `conr help VERB` and the
 * common flags come from the row.  Results go to stdout, everything else to stderr. */
#ifndef CLI_H
#define CLI_H

#include <jansson.h>
#include <stdbool.h>

/* A flag without `value` is a switch; one whose value ends in "..." may be given many times. */
typedef struct flag {
    const char *name;    /* "k1": given as --k1 */
    const char *value;   /* "N", as the help shows it; NULL for a switch */
    const char *initial; /* what holds when it is not given; NULL: nothing */
    const char *help;
} flag;

typedef struct arguments arguments;

typedef struct verb {
    const char *name;
    const char *operands; /* "F.npy --out N.npy", as the help shows them */
    const char *summary;  /* one line */
    const char *text;     /* a few lines more, and an example */
    int low, high;        /* how many operands; high < 0: any number */
    const flag *flags;    /* its own, ending with an empty one; NULL: none */
    int (*run)(const arguments *a);
    bool many; /* one job of many processes, under mpirun or srun; else one process does it */
} verb;

extern const verb verb_assign;
extern const verb verb_bench;
extern const verb verb_cluster;
extern const verb verb_embed;
extern const verb verb_eval;
extern const verb verb_export;
extern const verb verb_info;
extern const verb verb_kmeans;
extern const verb verb_neighbors;
extern const verb verb_report;
extern const verb verb_sweep;
extern const verb verb_train;

/* Exit codes. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

/* "conr: WHAT: WHY; REMEDY" on stderr; returns EXIT_USAGE. */
int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
int failed(const char *format, ...) __attribute__((format(printf, 1, 2))); /* EXIT_FAILED */
/* The library's message likewise; returns EXIT_FAILED, or EXIT_INTERRUPTED after Ctrl-C. */
int library_error(void);

int operand_count(const arguments *a);
const char *operand(const arguments *a, int i);

/* The flag as given, else its default (may be NULL).  The name must be one of the verb's or a
 * common one. */
const char *flag_text(const arguments *a, const char *name);
bool flag_on(const arguments *a, const char *name); /* a switch, or any flag: was it given? */
/* Of a flag that may be given many times: its values in order, NULL beyond the last. */
const char *flag_nth(const arguments *a, const char *name, int i);
/* 0, or EXIT_USAGE after a message when it is no number between low and high. */
int flag_int(const arguments *a, const char *name, long low, long high, int *out);
int flag_number(const arguments *a, const char *name, double low, double high, double *out);
/* A time in seconds: "90", "90s", "10m", "1h30m", "2d". */
int flag_seconds(const arguments *a, const char *name, double *out);

/* ---- texts ------------------------------------------------------------------------------------
 */

/* A name as a terminal can take it: control bytes become '?'. */
void print_name(const char *name);
/* JSON is UTF-8: bytes that are not become '?'. */
json_t *json_name(const char *name);
json_t *json_number(double x); /* null where it is not finite, which JSON cannot say */
/* "45 s", "3 min", "2 h 10 min"; out: 32 bytes.  Returns out. */
const char *time_text(double seconds, char *out);
/* "940", "8.3k"; out: 32 bytes.  Returns out. */
const char *rate_text(double rate, char *out);
/* The word as a shell would take it back: quoted where needed.  Owned by the caller. */
char *shell_word(const char *word);
/* "FOLDER/NAME", owned by the caller; ends the program where there is no memory. */
char *path_in(const char *folder, const char *name);

/* ---- output ------------------------------------------------------------------------------------
 */

/* Prints one JSON object to stdout and releases it; returns EXIT_OK, or EXIT_FAILED with a message
 * when it could not be written. */
int print_json(json_t *object);
/* Flushes stdout; returns EXIT_OK, or EXIT_FAILED with a message (a full disk, a closed pipe). */
int finish_output(void);

#endif
