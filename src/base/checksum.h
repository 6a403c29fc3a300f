/* checksum.h: XXH64 (Yann Collet's xxHash, 64 bits): against damage, not against malice.  As fast
 * as memory, so that whatever is written or read can be checked. */
#ifndef CONR_CHECKSUM_H
#define CONR_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* To check several pieces in order, give the result of one as the seed of the next. */
uint64_t checksum(const void *bytes, size_t n, uint64_t seed);

/* That of the first `most` bytes of a file, read in pieces: checksum(bytes, n, 0). */
int checksum_file(const char *path, size_t most, uint64_t *out);

/* Files that have no room for a checksum of their own are listed in a text file of their folder, on
 * lines "xxh64 DIGITS NAME".  checksum_line: such a line for the file FOLDER/NAME; errors of the
 * stream stay there.  checksum_check: fails if the list names the file with another checksum; a list
 * that does not exist or does not name it is fine. */
int checksum_line(FILE *list, const char *folder, const char *name);
int checksum_check(const char *folder, const char *name, const char *list);

#endif
