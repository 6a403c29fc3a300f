/* text.h: names, numbers and times as text. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

/* Prints a name with control bytes replaced by '?', so that it cannot upset a terminal. */
void print_name(const char *name);

/* "45 s", "3 min", "2 h 10 min"; out: 32 bytes.  Returns out. */
const char *time_text(double seconds, char *out);
/* "940", "8.3k"; out: 32 bytes.  Returns out. */
const char *rate_text(double rate, char *out);

/* The word as a shell would read it back: quoted if needed.  Owned by the caller. */
char *shell_word(const char *word);
/* "FOLDER/NAME", owned by the caller.  Exits if there is no memory. */
char *path_in(const char *folder, const char *name);

#endif
