/* cli_parse.h: between the files of the program: running a verb by its row. */
#ifndef CLI_PARSE_H
#define CLI_PARSE_H

#include "cli.h"

int verb_run(const verb *v, int argc, char **argv); /* argv: the words behind the verb */
int verb_help(const verb *v);
const verb *verb_at(int i);     /* of those that the help lists, in its order; NULL: no more */
const flag *common_flags(void); /* ending with an empty one */

/* pages.c: not listed */
extern const verb verb_completion;
extern const verb verb_man;
/* From now on nothing is printed but the error by which this process, and no other, fails. */
void be_silent(void);

/* progress.c */
void progress_end(void);    /* takes the line off the terminal */
bool was_interrupted(void); /* by Ctrl-C */

#endif
