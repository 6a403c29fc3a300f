/* cli_parse.h: between main.c and cli.c: running a verb by its row. */
#ifndef CLI_PARSE_H
#define CLI_PARSE_H

#include "cli.h"

int verb_run(const verb *v, int argc, char **argv); /* argv: the words behind the verb */
int verb_help(const verb *v);

#endif
