/* options_text.h: what options.c and options_yaml.c share: single settings as text. */
#ifndef CONR_OPTIONS_TEXT_H
#define CONR_OPTIONS_TEXT_H

#include "base/options.h"

#include <stdint.h>

/* In messages: where is "" or "FILE:LINE: ".
 * option_find fails with a message that names the nearest key. */
int option_find(const char *where, const option *list, int count, const char *key,
                const option **out);
int option_set(const char *where, const option *o, void *settings, const char *text);
void option_get(const option *o, const void *settings, char out[OPTION_TEXT_SIZE]);

/* true, yes, on, 1 or false, no, off, 0, in letters of either case. */
bool text_is_bool(const char *text);
/* The code point at *text, which moves past it; -1 if it is not UTF-8. */
int32_t text_code(const char **text);

#endif
