/* fuzz.h: the entry point of every fuzz target.
 *
 * A target takes any bytes and must return success or an error without a crash, a leak, a hang or
 * an absurd allocation.  scripts/fuzz.sh builds and runs all targets. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

#endif
