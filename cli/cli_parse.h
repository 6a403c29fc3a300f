/* cli_parse.h: what main.c and pages.c need of cli.c: running a verb, and its row. */
#ifndef CLI_PARSE_H
#define CLI_PARSE_H

#include "cli.h"

int verb_run(const verb *v, int argc, char **argv); /* argv: the words after the verb */
int verb_help(const verb *v);
const flag *common_flags(void); /* ending with an empty one */

const verb *verb_at(int i); /* main.c: verb i in the order of the help; NULL: no more */

/* pages.c: verbs that the help does not list */
extern const verb verb_completion;
extern const verb verb_man;

#endif
