/* json.h: building JSON so that no failure is lost.  The library and the program both compile it: it
 * knows nothing of either.
 *
 * jansson reports memory that it could not get by NULL or -1 at every step.  Here NULL goes in and
 * NULL comes out, so that a chain of calls is checked once, at its end:
 *
 *     json_t *o = json_pack("{si}", "n", n);
 *     o = json_put(o, "loss", json_real(loss));
 *     o = json_put(o, "runs", json_push(json_array(), json_real(x)));
 *     char *text = json_write(o, JSON_COMPACT);
 *     if (!text) return fail_memory(...); */
#ifndef CONR_JSON_H
#define CONR_JSON_H

#include <jansson.h>
#include <stdbool.h>

/* Adds a value, which is taken over, to an object or an array and returns that; NULL if either is
 * NULL or memory is short, and then both are released. */
json_t *json_put(json_t *object, const char *key, json_t *value);
json_t *json_push(json_t *array, json_t *value);

/* A string.  NULL: memory is short, or, with *odd set, the text is not UTF-8, as JSON must be. */
json_t *json_text(const char *text, bool *odd);

/* The value as text, released by free.  NULL: memory is short, or the value is NULL.  flags: as for
 * json_dumps, which loses some failures and then returns part of the text. */
char *json_write(const json_t *value, size_t flags);

/* Parses a text.  NULL: it is not JSON or, with *scarce set, memory is short. */
json_t *json_read(const char *text, bool *scarce);

#endif
