#!/bin/sh
# Fuzzes every parser under clang's sanitizers: fuzz/fuzz_NAME.c with the corpus fuzz/corpus/NAME.
#   fuzz.sh [SECONDS [NAME...]]     default: 60 seconds each, all of them, one per core at a time
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

# Only the parsers, without OpenMP: a fuzzer runs one thread.
objects=""
for source in src/json/*.c src/base/*.c src/images/decode*.c src/images/source*.c src/device/ref*.c \
    src/encoder/*.c src/views/pixels_resize.c src/pretrained/families.c src/pretrained/settings.c \
    src/pretrained/resnet_family.c src/pretrained/vit*.c; do
    case $source in *_test.c | */test_help.c) continue ;; esac
    object=$build/$(basename "$source" .c).o
    objects="$objects $object"
    # shellcheck disable=SC2086
    $clang $flags -fsanitize=fuzzer-no-link -c "$source" -o "$object"
done
for name in $names; do
    # shellcheck disable=SC2086,SC2046
    $clang $flags -fsanitize=fuzzer "fuzz/fuzz_$name.c" $objects $(pkg-config --libs $libraries) -lm \
        -o "$build/fuzz_$name"
    mkdir -p "$build/found/$name"
done

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
