/* recipe.h: the settings of a training, from a recipe and flags, as text and JSON. */
#ifndef CLI_RECIPE_H
#define CLI_RECIPE_H

#include "cli.h"
#include "conr.h"

enum { SETTING_SIZE = 256 }; /* bytes for a value as text */

/* clang-format off */
#define RECIPE_FLAGS                                                                               \
    {"recipe", "NAME", NULL, "one of conr recipes, or a YAML file of settings: RUN/options.yaml"},    \
    {"set", "KEY=VALUE...", NULL, "change one setting; may be repeated"}
/* clang-format on */

/* Fills s from --recipe, then from --split, --labels, --classes, --long-tail, --seed and --clusters
 * if given, then from every --set in order.  0, or an exit code after a message. */
int recipe_fill(const arguments *a, conr_settings *s);
/* Its three steps. */
int recipe_read(const arguments *a, conr_settings *s);
int recipe_flags(const arguments *a, conr_settings *s);
int recipe_sets(const arguments *a, conr_settings *s);

/* --clusters: a number, auto or auto:LOW-HIGH, as the settings clusters, clusters_low and
 * clusters_high.  0, or an exit code after a message. */
int recipe_clusters(const char *text, conr_settings *s);

/* Whether a --set was given for this key. */
bool recipe_names(const arguments *a, const char *key);

/* The length of the key in "key=value", or -1 after a usage error. */
int pair_key(const char *flag, const char *pair);

/* One setting; the key must exist.  out: SETTING_SIZE bytes; returns out. */
const char *setting_text(const conr_settings *s, const char *key, char *out);
double setting_number(const conr_settings *s, const char *key);
/* Sets an existing key to an allowed value; anything else is a bug. */
void setting_put(conr_settings *s, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The images that the settings select.  texts: 2 * SETTING_SIZE bytes that out points into. */
void recipe_images(const conr_settings *s, char *texts, conr_images_options *out);

json_t *recipe_json(const conr_settings *s);       /* every setting, numbers as numbers */
void recipe_print(const conr_settings *s);         /* every setting, as a recipe */
void recipe_print_changed(const conr_settings *s); /* those that differ from the defaults */
int recipe_print_list(bool json);                  /* a table of all settings */

#endif
