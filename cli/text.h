/* text.h: names, numbers and times as text and JSON. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <jansson.h>

/* Prints a name with control bytes replaced by '?', so that it cannot upset a terminal. */
void print_name(const char *name);
/* A JSON string; JSON is UTF-8, so bytes that are not become '?'. */
json_t *json_name(const char *name);
/* A JSON number; null if x is not finite, which JSON cannot express. */
json_t *json_number(double x);

/* "45 s", "3 min", "2 h 10 min"; out: 32 bytes.  Returns out. */
const char *time_text(double seconds, char *out);
/* "940", "8.3k"; out: 32 bytes.  Returns out. */
const char *rate_text(double rate, char *out);

/* The word as a shell would read it back: quoted if needed.  Owned by the caller. */
char *shell_word(const char *word);
/* "FOLDER/NAME", owned by the caller.  Exits if there is no memory. */
char *path_in(const char *folder, const char *name);

#endif
