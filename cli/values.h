/* values.h: JSON values as the program prints them, beside json/json.h: NULL goes in and NULL comes
 * out, and print_json (output.h) checks at the end. */
#ifndef CLI_VALUES_H
#define CLI_VALUES_H

#include "json/json.h"

/* Adds what `more` has and object has not; `more` is released.  NULL: either is NULL or memory is
 * short, and then both are released. */
json_t *json_merge(json_t *object, json_t *more);

/* A JSON string; JSON is UTF-8, so bytes that are not become '?'. */
json_t *json_name(const char *name);
/* A JSON number; null if x is not finite, which JSON cannot express. */
json_t *json_number(double x);

#endif
