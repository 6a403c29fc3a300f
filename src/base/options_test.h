/* options_test.h: the list of settings that the tests of options.c and options_yaml.c use. */
#ifndef CONR_OPTIONS_TEST_H
#define CONR_OPTIONS_TEST_H

#include "base/options.h"
#include "base/test_help.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#define INNER_OPTIONS(X, T)                                                                        \
    X(T, BOOL, flip, true, "mirror images at random")                                              \
    X(T, TEXT, note, "", "free text, kept with the run")

#define MODEL_OPTIONS(X, T)                                                                        \
    X(T, WORD, encoder, "resnet18", "resnet18|resnet34|small", "the network")                      \
    X(T, INT, size, 32, 16, 4096, "side of the input image, pixels")                               \
    X(T, FLOAT, lr, 0.05, 0, 100, "learning rate at its peak")                                     \
    INNER_OPTIONS(X, T)                                                                            \
    X(T, FLOAT, any_number, -1e-5, -INFINITY, INFINITY, "no bounds")                               \
    X(T, INT, any_int, -3, INT_MIN, INT_MAX, "no bounds either")                                   \
    X(T, FLOAT, weight_decay, 5e-4, 0, INFINITY, "one bound")                                      \
    X(T, WORD, answer, "yes", "yes|1|no way", "a choice that YAML would take for something else")

typedef struct model_options {
    int before; /* a field of its own, which no list knows */
    OPTIONS_STRUCT(MODEL_OPTIONS)
    int after;
} model_options;
static const option model_list[] = {OPTIONS_LIST(MODEL_OPTIONS, model_options)};

#define LIST OPTIONS_OF(model_list)

static model_options defaults(void) {
    model_options o;
    memset(&o, 0, sizeof o);
    o.before = 11;
    o.after = 22;
    options_default(LIST, &o);
    return o;
}

#endif
