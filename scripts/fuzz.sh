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
libraries="libjpeg libpng libwebp zlib libtiff-4 libheif libarchive yaml-0.1 jansson"
flags="-std=gnu11 -D_GNU_SOURCE -DCONR_GIF -DCONR_TIFF -DCONR_HEIF -DCONR_ARCHIVE -O1 -g -Wno-unknown-pragmas -Iinclude -Isrc -Ifuzz
       -fsanitize=address,undefined -fno-sanitize-recover=all $(pkg-config --cflags $libraries)"
mkdir -p "$build"

# Without OpenMP: a fuzzer runs one thread.  What a target needs beside its parser comes from an
# archive; kernels and the CPU's table take clang minutes under sanitizers and are left out.
rm -f "$build/all.a"
for source in src/json/*.c src/base/*.c src/views/*.c src/device/ref*.c src/ranks/ranks.c \
    src/ranks/single.c src/encoder/*.c src/images/decode*.c src/images/source*.c src/images/archive.c src/images/unreadable.c \
    src/pretrained/families.c src/pretrained/settings.c src/pretrained/resnet_family.c \
    src/pretrained/vit*.c; do
    case $source in *_test.c | */test_help.c) continue ;; esac
    object=$build/$(echo "$source" | tr / -).o
    if [ ! "$object" -nt "$source" ] || [ -n "$(find src include -name '*.h' -newer "$object")" ]; then
        echo "$source $object"
    fi
done >"$build/todo"
# shellcheck disable=SC2086
xargs -r -P "$(nproc)" -L 1 sh -c "exec $clang $(echo $flags) -fsanitize=fuzzer-no-link -c \$0 -o \$1" <"$build/todo"
ar rcs "$build/all.a" "$build"/src-*.o
for name in $names; do
    # shellcheck disable=SC2086,SC2046
    $clang $flags -fsanitize=fuzzer "fuzz/fuzz_$name.c" "$build/all.a" $(pkg-config --libs $libraries) -lgif \
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
