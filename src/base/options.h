/* options.h: settings, each from one line of one list.
 *
 *     #define MODEL_OPTIONS(X, T)                                                                 \
 *         X(T, WORD, encoder, "resnet18", "resnet18|resnet34|small", "the network")               \
 *         X(T, INT, size, 32, 16, 4096, "side of the input image, pixels")                        \
 *         X(T, FLOAT, lr, 0.05, 0, 100, "learning rate at its peak")                              \
 *         X(T, BOOL, flip, true, "mirror images at random")                                       \
 *         X(T, TEXT, note, "", "free text, kept with the run")
 *     typedef struct model_options { OPTIONS_STRUCT(MODEL_OPTIONS) } model_options;
 *     static const option model_list[] = {OPTIONS_LIST(MODEL_OPTIONS, model_options)};
 *
 *     model_options o;
 *     options_default(OPTIONS_OF(model_list), &o);
 *     TRY(options_read_yaml(OPTIONS_OF(model_list), &o, "recipe.yaml"));
 *     TRY(options_set_pair(OPTIONS_OF(model_list), &o, "lr=0.1"));
 *
 * A line is kind, name, default, then the smallest and the largest value (INT, FLOAT) or the
 * choices (WORD), then the help.  A list may contain another:
 *     #define ALL(X, T) MODEL_OPTIONS(X, T) X(...)
 *
 * Owns the fields of the struct, defaults, keys, checks, help, and reading and writing YAML.  A key
 * is the name of the field; '-' in a given key stands for '_', so that flags need no second name.
 * Which flags exist and where files are is left to the program.  Nothing depends on the locale.
 *
 * A call that fails changes nothing.  Messages name the setting and its allowed values; those about
 * a file begin with FILE:LINE. */
#ifndef CONR_OPTIONS_H
#define CONR_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { OPTION_TEXT_SIZE = 256 }; /* bytes of a WORD or TEXT, including the NUL */

typedef enum option_kind {
    OPTION_INT,   /* int */
    OPTION_FLOAT, /* double, never NaN or infinite */
    OPTION_BOOL,  /* bool */
    OPTION_WORD,  /* char[OPTION_TEXT_SIZE], one of the choices */
    OPTION_TEXT   /* char[OPTION_TEXT_SIZE], UTF-8 */
} option_kind;

/* One setting.  All texts are literals in the list. */
typedef struct option {
    const char *key;
    option_kind kind;
    size_t at;           /* offset of the field in its struct */
    double number;       /* default of INT, FLOAT, BOOL */
    double low, high;    /* range of INT, FLOAT, both included; FLOAT: +-INFINITY if unbounded */
    const char *text;    /* default of WORD, TEXT */
    const char *choices; /* of a WORD, "a|b|c" */
    const char *help;
} option;

/* ---- one list, many uses --------------------------------------------------------------------- */

#define OPTIONS_STRUCT(LIST)  LIST(OPTION_FIELD, unused)
#define OPTIONS_LIST(LIST, T) LIST(OPTION_ENTRY, T)
/* The first two arguments of every function below, from an array of options. */
#define OPTIONS_OF(list) (list), (int)(sizeof(list) / sizeof *(list))

#define OPTION_FIELD(T, kind, name, ...) OPTION_FIELD_##kind(name)
#define OPTION_FIELD_INT(name)           int name;
#define OPTION_FIELD_FLOAT(name)         double name;
#define OPTION_FIELD_BOOL(name)          bool name;
#define OPTION_FIELD_WORD(name)          char name[OPTION_TEXT_SIZE];
#define OPTION_FIELD_TEXT(name)          char name[OPTION_TEXT_SIZE];

#define OPTION_ENTRY(T, kind_, name, ...)                                                          \
    {.key = #name,                                                                                 \
     .kind = OPTION_##kind_,                                                                       \
     .at = offsetof(T, name),                                                                      \
     OPTION_MORE_##kind_(__VA_ARGS__)},
#define OPTION_MORE_INT(value, least, greatest, words)                                             \
    .number = (value), .low = (least), .high = (greatest), .help = (words)
#define OPTION_MORE_FLOAT(value, least, greatest, words)                                           \
    .number = (value), .low = (least), .high = (greatest), .help = (words)
#define OPTION_MORE_BOOL(value, words)       .number = (value), .help = (words)
#define OPTION_MORE_WORD(value, words, more) .text = (value), .choices = (words), .help = (more)
#define OPTION_MORE_TEXT(value, words)       .text = (value), .help = (words)

/* ---- settings: a struct made by OPTIONS_STRUCT, owned by the caller -------------------------- */

void options_default(const option *list, int count, void *settings);

/* value: as in YAML, but without quotes; BOOL also yes, no, on, off, 1, 0. */
int options_set(const option *list, int count, void *settings, const char *key, const char *value);
int options_set_pair(const option *list, int count, void *settings,
                     const char *pair); /* "key=value" */

/* One setting as text that options_set accepts. */
int options_get_text(const option *list, int count, const void *settings, const char *key,
                     char out[OPTION_TEXT_SIZE]);

/* Reads a flat mapping of keys to values; settings that it does not name stay as they are. */
int options_read_yaml(const option *list, int count, void *settings, const char *path);
/* The same from memory: text of `length` bytes that messages call `name`. */
int options_read_yaml_text(const option *list, int count, void *settings, const char *name,
                           const char *text, size_t length);

/* Writes every setting on a line, so that reading gives the same bits.  Errors stay in the stream
 * (file_new_commit reports them). */
void options_write_yaml(const option *list, int count, const void *settings, FILE *stream);

/* Prints one line per setting: key, default, allowed values, help; aligned. */
void options_help(const option *list, int count, FILE *stream);

#endif
