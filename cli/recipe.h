/* recipe.h: settings of a training: from a recipe and flags, as text and JSON. */
#ifndef CLI_RECIPE_H
#define CLI_RECIPE_H

#include "cli.h"
#include "conr.h"

enum { SETTING_SIZE = 256 }; /* bytes of a value as text */

/* clang-format off */
#define RECIPE_FLAGS                                                                               \
    {"recipe", "FILE", NULL, "settings, YAML: one of recipes/, or a run's options.yaml"},          \
    {"set", "KEY=VALUE...", NULL, "change one setting; may be given many times"}
/* clang-format on */

/* Fills s from --recipe, then --split, --labels, --classes, --long-tail, --seed and --clusters
 * where the verb has them and they were given, then every --set in order.  0, or an exit code after
 * a message. */
int recipe_fill(const arguments *a, conr_settings *s);
/* The parts of it. */
int recipe_read(const arguments *a, conr_settings *s);
int recipe_flags(const arguments *a, conr_settings *s);
int recipe_sets(const arguments *a, conr_settings *s);

/* Whether a --set names this key. */
bool recipe_names(const arguments *a, const char *key);

/* "key=value": the length of the key, or -1 after a usage error. */
int pair_key(const char *flag, const char *pair);

/* One setting; the key is known.  out: SETTING_SIZE bytes; returns out. */
const char *setting_text(const conr_settings *s, const char *key, char *out);
double setting_number(const conr_settings *s, const char *key);
/* Sets a known key to an allowed value: anything else is a bug. */
void setting_put(conr_settings *s, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The images that the settings choose; texts: 2 * SETTING_SIZE bytes, which out points into. */
void recipe_images(const conr_settings *s, char *texts, conr_images_options *out);

json_t *recipe_json(const conr_settings *s);       /* every setting, numbers as numbers */
void recipe_print(const conr_settings *s);         /* every setting, as a recipe could say it */
void recipe_print_changed(const conr_settings *s); /* those that are not as they are by default */
int recipe_print_list(bool json);                  /* what can be set: a table */

#endif
