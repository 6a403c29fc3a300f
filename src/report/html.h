/* html.h: writes HTML pages.  Everything that comes from users (names of files, classes, folders,
 * notes) goes through html_text or html_json, which no name can break out of. */
#ifndef CONR_HTML_H
#define CONR_HTML_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Text in an element or a quoted attribute.  Invalid UTF-8 and control characters become U+FFFD. */
void html_text(FILE *f, const char *text);
/* A JSON string including its quotes; also safe inside <script>. */
void html_json(FILE *f, const char *text);
void html_base64(FILE *f, const void *bytes, size_t n);

/* Like printf, but every %s is escaped; the format itself is not.  Few conversions: see html.c. */
void html_print(FILE *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "12,345" (static memory, good for the last eight calls). */
const char *html_count(int64_t n);
/* "45 s", "3 min 20 s", "2 h 10 min"; likewise. */
const char *html_time(double seconds);

/* Everything before and after <main>: style, navigation, script.  nav: "id\0Title\0...\0\0". */
void html_head(FILE *f, const char *title, const char *nav);
void html_foot(FILE *f);

#endif
