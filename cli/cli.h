/* cli.h: what a verb of the program is, and what it can ask about its flags.
 *
 * A verb is a row: its name, flags, help and function.  Parsing, `--help`, `conr help VERB`, shell
 * completion and the manual page all come from the row.  Results go to stdout, everything else to
 * stderr (output.h). */
#ifndef CLI_H
#define CLI_H

#include "output.h"
#include "text.h"

#include <stdbool.h>

/* A flag without `value` is a switch; one whose value ends in "..." may be repeated. */
typedef struct flag {
    const char *name;    /* "k1" for --k1 */
    const char *value;   /* "N", as the help shows it; NULL: a switch */
    const char *initial; /* its default; NULL: none */
    const char *help;
} flag;

typedef struct arguments arguments;

typedef struct verb {
    const char *name;
    const char *operands;           /* "F.npy --out N.npy", as the help shows them */
    const char *summary;            /* one line, imperative, without a period */
    const char *text;               /* a few more lines, and an example */
    int low, high;                  /* number of operands; high < 0: any */
    const flag *flags;              /* its own, ending with an empty one; NULL: none */
    int (*run)(const arguments *a); /* returns the exit code */
    bool many;                      /* may run as several processes, under mpirun or srun */
} verb;

extern const verb verb_assign;
extern const verb verb_bench;
extern const verb verb_cluster;
extern const verb verb_duplicates;
extern const verb verb_embed;
extern const verb verb_eval;
extern const verb verb_export;
extern const verb verb_info;
extern const verb verb_kmeans;
extern const verb verb_neighbors;
extern const verb verb_open;
extern const verb verb_recipes;
extern const verb verb_report;
extern const verb verb_sweep;
extern const verb verb_train;

int operand_count(const arguments *a);
const char *operand(const arguments *a, int i);

/* Flags are asked for by name, which must be one of the verb's or a common one. */

/* The value as given, else the default (may be NULL). */
const char *flag_text(const arguments *a, const char *name);
/* Whether the flag was given; any kind of flag. */
bool flag_on(const arguments *a, const char *name);
/* Value i = 0, 1, ... of a flag that may be repeated; NULL past the last. */
const char *flag_nth(const arguments *a, const char *name, int i);
/* A number from low to high: 0, or EXIT_USAGE after a message. */
int flag_int(const arguments *a, const char *name, long low, long high, int *out);
int flag_number(const arguments *a, const char *name, double low, double high, double *out);
/* A time ("90", "90s", "10m", "1h30m", "2d") in seconds: 0, or EXIT_USAGE after a message. */
int flag_seconds(const arguments *a, const char *name, double *out);

#endif
