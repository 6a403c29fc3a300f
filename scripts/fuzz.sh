#!/bin/sh
# Fuzzes every parser under clang's sanitizers: fuzz/fuzz_NAME.c with the corpus fuzz/corpus/NAME.
#   fuzz.sh [SECONDS [NAME...]]     default: 60 seconds each, all of them, one per core at a time;
#                                   0 seconds: only builds
# New inputs are kept in build-fuzz/found/NAME; a crash is an error and leaves its input and log in
# build-fuzz.  Needs clang with its fuzzer (Debian: clang and libclang-rt-*-dev).
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
[ $# -gt 0 ] && shift
build=${FUZZ_BUILD:-build-fuzz}
clang=${CLANG:-clang}
names=${*:-$(for f in fuzz/fuzz_*.c; do basename "$f" .c; done | sed 's/^fuzz_//')}
libraries="libjpeg libpng libwebp zlib yaml-0.1 jansson"
flags="-std=gnu11 -D_GNU_SOURCE -O1 -g -Wno-unknown-pragmas -Iinclude -Isrc -Ifuzz
       -fsanitize=address,undefined -fno-sanitize-recover=all $(pkg-config --cflags $libraries)"
mkdir -p "$build"

# The rooms that parse and what they stand on, without OpenMP: a fuzzer runs one thread.  They become
# an archive, of which the linker takes what a target needs.
rm -rf "$build/objects" "$build/parsers.a"
mkdir "$build/objects"
cat >"$build/compile.sh" <<END
$clang $(echo $flags) -fsanitize=fuzzer-no-link -c "\$1" -o "$build/objects/\$(echo "\$1" | tr / -).o"
END
find src/json src/base src/views src/encoder src/images src/pretrained src/device/ref*.c \
    src/ranks/ranks.c src/ranks/single.c -name '*.c' ! -name '*_test.c' ! -name test_help.c \
    ! -path src/pretrained/encoder.c | xargs -P "$(nproc)" -n 1 sh "$build/compile.sh"
ar rcs "$build/parsers.a" "$build"/objects/*.o
for name in $names; do
    # shellcheck disable=SC2086,SC2046
    $clang $flags -fsanitize=fuzzer "fuzz/fuzz_$name.c" "$build/parsers.a" $(pkg-config --libs $libraries) \
        -lm -o "$build/fuzz_$name"
    mkdir -p "$build/found/$name"
done
[ "$seconds" != 0 ] || exit 0

# A target may use twice the memory of the largest image allowed, and no more.
cat >"$build/one.sh" <<END
"$build/fuzz_\$1" -max_total_time=$seconds -timeout=20 -rss_limit_mb=3000 -malloc_limit_mb=800 \\
    -artifact_prefix="$build/crash-\$1-" -print_final_stats=1 -verbosity=0 \\
    "$build/found/\$1" "fuzz/corpus/\$1" >"$build/\$1.log" 2>&1 ||
    { echo "fuzz \$1: FAILED, see $build/\$1.log"; exit 1; }
echo "fuzz \$1: \$(sed -n 's/.*number_of_executed_units: *//p' "$build/\$1.log") inputs in $seconds s, clean"
END
# shellcheck disable=SC2086
printf '%s\n' $names | xargs -P "$(nproc)" -n 1 sh "$build/one.sh"
