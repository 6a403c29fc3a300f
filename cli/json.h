/* json.h: building JSON so that no failure is lost.
 *
 * jansson reports memory that it could not get by NULL or -1 at every step.  Here NULL goes in and
 * NULL comes out, so that a chain of calls is checked once, at its end: by print_json (output.h), or
 * by json_write. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <jansson.h>
#include <stdbool.h>

/* Adds a value, which is taken over, to an object or an array and returns that; NULL if either is
 * NULL or memory is short, and then both are released. */
json_t *json_put(json_t *object, const char *key, json_t *value);
json_t *json_push(json_t *array, json_t *value);
/* Adds what `more` has and object has not; `more` is released.  NULL as above. */
json_t *json_merge(json_t *object, json_t *more);

/* A JSON string; JSON is UTF-8, so bytes that are not become '?'. */
json_t *json_name(const char *name);
/* A JSON number; null if x is not finite, which JSON cannot express. */
json_t *json_number(double x);

/* The value as text, released by free.  NULL: memory is short, or the value is NULL.  flags: as for
 * json_dumps, which loses some failures and then returns part of the text. */
char *json_write(const json_t *value, size_t flags);

/* Parses a text.  NULL: it is not JSON or, with *scarce set, memory is short. */
json_t *json_read(const char *text, bool *scarce);

#endif
