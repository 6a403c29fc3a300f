/* checksum.h: XXH64 (Yann Collet's xxHash, 64 bits): against damage, not against malice.  As fast
 * as memory, so that whatever is written or read can be checked. */
#ifndef CONR_CHECKSUM_H
#define CONR_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* To check several pieces in order, give the result of one as the seed of the next. */
uint64_t checksum(const void *bytes, size_t n, uint64_t seed);

#endif
