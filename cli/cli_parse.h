/* cli_parse.h: between the files of the program: running a verb by its row. */
#ifndef CLI_PARSE_H
#define CLI_PARSE_H

#include "cli.h"

int verb_run(const verb *v, int argc, char **argv); /* argv: the words behind the verb */
int verb_help(const verb *v);

/* progress.c */
void progress_end(void);    /* takes the line off the terminal */
bool was_interrupted(void); /* by Ctrl-C */

#endif
