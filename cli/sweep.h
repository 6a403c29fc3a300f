/* sweep.h: a sweep: its grid and settings (sweep.c), its files and its table (sweep_files.c). */
#ifndef CLI_SWEEP_H
#define CLI_SWEEP_H

#include "cli.h"
#include "conr.h"
#include "features.h"
#include "recipe.h"

enum { MOST_KEYS = 8, MOST_VALUES = 64, MOST_COMBINATIONS = 4096, NAME_SIZE = 240 };

/* One --grid. */
typedef struct axis {
    char key[SETTING_SIZE];
    char value[MOST_VALUES][SETTING_SIZE];
    int n;
} axis;

typedef struct sweep {
    const arguments *a;
    const char *out;
    axis *axis; /* [n_axes] */
    int n_axes, n_combinations;
    int seed, seeds;
    conr_train_options options;
    conr_settings *base; /* shared by all runs */
    conr *c;
    bool of_features;              /* --features in place of trainings; */
    features features;             /* read once */
    conr_images *images;           /* opened once, unless the grid changes the selection */
    char chosen[4 * SETTING_SIZE]; /* the selection that is open */
    json_t *report;                /* sweep.json */
    int n_failed;
} sweep;

/* The value of an axis in a combination; the last axis varies fastest. */
const char *sweep_value(const sweep *w, int combination, int which);

/* Creates the folder and begins w->report, what sweep.json will be; refuses a folder whose runs have
 * other settings.  Like the others below: 0, or an exit code after a message. */
int sweep_begin(sweep *w);
/* Writes sweep.json. */
int sweep_save(const sweep *w);
/* Adds mean and sample deviation of each score to a combination, over the runs that have it. */
int sweep_add_means(json_t *combination);
/* Writes and prints the table. */
int sweep_finish(sweep *w);

#endif
