/* fuzz.h: what every fuzz target needs.
 *
 * A target takes any bytes and must answer with success or an error, without a crash, a leak, a
 * hang or an absurd allocation.  scripts/fuzz.sh builds and runs them all. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

#endif
