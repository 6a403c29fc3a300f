#!/bin/bash
# An installation: the files are in place; programs compile against it with pkg-config and with CMake
# and run, among them the one that conr.h opens with; completion completes; the manual page formats.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
complain() { echo "$*"; failures=$((failures + 1)); }

cmake --install "$build" --prefix "$work/x" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
for file in bin/conr include/conr.h lib/libconr.so lib/libconr.so.0 lib/pkgconfig/conr.pc lib/cmake/conr/conrConfig.cmake \
    share/man/man1/conr.1 share/bash-completion/completions/conr share/zsh/site-functions/_conr share/conr/recipes/demo.yaml \
    share/conr/samples/fashion-mnist/t10k-images-idx3-ubyte.gz share/conr/samples/fashion-mnist/LICENSE; do
    [ -s "$work/x/$file" ] || complain "install: lacks $file"
done
mv "$work/x" "$work/moved" # it must work from anywhere
x=$work/moved
"$x/bin/conr" --version | grep -q '^conr 0\.' || complain "the installed program does not run"
(cd / && "$x/bin/conr" recipes cifar10) | cmp -s - recipes/cifar10.yaml || complain "the installed program does not find its recipes"
(cd "$work" && timeout 60 "$x/bin/conr" train --recipe demo --out sample --quiet --no-report --set width=4 --set epochs=1 --set stage1_epochs=1 \
    --set warmup_epochs=0 --set hidden=16 --set size=16 --set restarts=1 --set crop_scale=1 --set batch=1000) >"$work/log" 2>&1 ||
    { complain "conr train --recipe demo: does not train on the sample"; cat "$work/log"; }

cat >"$work/user.c" <<'C'
#include <conr.h>
#include <stdio.h>
#include <string.h>
int main(void) {
    float x[] = {1, 0, 0.9f, 0.1f, 0, 1, 0.1f, 0.9f}, centroids[4];
    int32_t label[4];
    conr *c;
    conr_kmeans_options o = conr_kmeans_defaults();
    o.clusters = 2;
    if (conr_open("cpu", 1, &c) < 0 || conr_kmeans(c, x, 4, 2, &o, centroids, label, NULL) < 0)
        return fprintf(stderr, "%s\n", conr_error()), 1;
    conr_close(c);
    printf("%s %d\n", conr_version(), label[0] == label[1] && label[2] == label[3] && label[0] != label[2]);
    return strcmp(conr_version(), CONR_VERSION) != 0;
}
C
export PKG_CONFIG_PATH=$x/lib/pkgconfig
# a library built with sanitizers needs them loaded first
flags=$(nm -D "$x/lib/libconr.so" | grep -q __asan_init && echo -fsanitize=address,undefined)
"${CC:-cc}" $flags "$work/user.c" $(pkg-config --cflags --libs conr) -Wl,-rpath,"$x/lib" -o "$work/user" || complain "pkg-config: does not compile"
[ "$("$work/user")" = "$(pkg-config --modversion conr) 1" ] || complain "pkg-config: the program said '$("$work/user" 2>&1)'"
readelf -d "$work/user" | grep -q 'NEEDED.*libconr\.so\.0\]' || complain "the program is not linked to libconr.so.0"

# the header: C99 and C++, without a warning; and the program that it opens with, as it stands there
strict="-Wall -Wextra -Wpedantic -Werror -fsyntax-only"
echo '#include <conr.h>
int main(void) { return conr_version()[0] != 48; }' >"$work/user.h.c"
"${CC:-cc}" -std=c99 $strict $(pkg-config --cflags conr) "$work/user.h.c" || complain "conr.h: not C99, or warns"
if command -v c++ >/dev/null; then
    c++ -std=c++11 $strict -x c++ $(pkg-config --cflags conr) "$work/user.h.c" || complain "conr.h: not C++, or warns"
fi
sed -n '/^ \*     #include <conr.h>$/,/^ \*     }$/s/^ \*\( \{5\}\|$\)//p' "$x/include/conr.h" >"$work/first.c"
grep -q conr_train "$work/first.c" || complain "conr.h: no program at its head that trains"
"${CC:-cc}" -std=c99 -Wall -Wextra -Wpedantic -Werror $flags "$work/first.c" $(pkg-config --cflags --libs conr) \
    -Wl,-rpath,"$x/lib" -o "$work/first" || complain "conr.h: its first program does not compile"
# 60 images of the sample, as the array that NumPy would write
{ printf '\x93NUMPY\x01\x00v\x00'; printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': (60, 28, 28), }"
    gzip -dc samples/fashion-mnist/t10k-images-idx3-ubyte.gz | tail -c +17 | head -c $((60 * 784)); } >"$work/tiny.npy"
(cd "$work" && ./first tiny.npy 1 >first.txt) || complain "conr.h: its first program fails"
[ "$(wc -l <"$work/first.txt")" = 60 ] && [ "$(grep -cE '^[0-9] .*tiny.npy#[0-9]+$' "$work/first.txt")" = 60 ] &&
    [ "$(cut -d' ' -f1 "$work/first.txt" | sort -u | wc -l)" = 10 ] ||
    { complain "conr.h: its first program does not print 60 images in ten clusters:"; head -3 "$work/first.txt"; }
[ -e "$work/run/DONE" ] || complain "conr.h: its first program leaves no finished run"
mkdir "$work/cmake" && cat >"$work/cmake/CMakeLists.txt" <<C
cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(conr REQUIRED)
add_executable(user $work/user.c)
target_compile_options(user PRIVATE $flags)
target_link_options(user PRIVATE $flags)
target_link_libraries(user conr::conr)
C
{ cmake -S "$work/cmake" -B "$work/cmake/b" -DCMAKE_PREFIX_PATH="$x" && cmake --build "$work/cmake/b"; } >"$work/log" 2>&1 || { complain "find_package: does not build"; cat "$work/log"; }
"$work/cmake/b/user" >/dev/null || complain "find_package: the program does not run"

# completed WORDS...: what bash offers for the last word
completed() {
    bash -c 'compopt() { :; }; source "$0"; COMP_WORDS=(conr "$@"); COMP_CWORD=$#; _conr; echo "${COMPREPLY[*]}"' \
        "$x/share/bash-completion/completions/conr" "$@"
}
[ "$(completed clu)" = cluster ] || complain "bash: clu gives '$(completed clu)'"
[ "$(completed cluster photos --bud)" = --budget ] || complain "bash: --bud gives '$(completed cluster photos --bud)'"
[ "$(completed assign a b --thr)" = --threads ] || complain "bash: a common flag gives '$(completed assign a b --thr)'"
[ "$(completed export a --format o)" = onnx ] || complain "bash: --format gives '$(completed export a --format o)'"
[ "$(completed train --set stage1_e)" = stage1_epochs= ] || complain "bash: --set gives '$(completed train --set stage1_e)'"
[ "$(completed bench n)" = neighbors ] || complain "bash: bench gives '$(completed bench n)'"
[ "$(completed help ev)" = eval ] || complain "bash: help gives '$(completed help ev)'"
if command -v zsh >/dev/null; then zsh -n "$x/share/zsh/site-functions/_conr" || complain "zsh: its completion does not parse"; fi
head -1 "$x/share/zsh/site-functions/_conr" | grep -qx '#compdef conr' || complain "zsh: lacks #compdef"
for verb in $("$x/bin/conr" --help | sed -n '/^Verbs:/,$p' | awk 'NR > 1 {print $1}'); do
    grep -q "^\.SS conr $verb " "$x/share/man/man1/conr.1" || complain "man: lacks $verb"
    grep -q "^    $verb)" "$x/share/bash-completion/completions/conr" || complain "bash: lacks $verb"
    grep -q "^    $verb)" "$x/share/zsh/site-functions/_conr" || complain "zsh: lacks $verb"
done
if command -v groff >/dev/null; then
    groff -man -Tutf8 -ww "$x/share/man/man1/conr.1" >"$work/page" 2>"$work/log"
    [ -s "$work/log" ] && { complain "man: groff complains"; head "$work/log"; }
    grep -q 'cluster images without labels' "$work/page" || complain "man: lacks its name"
fi

[ "$failures" = 0 ] && echo "the installation is in order"
exit "$failures"
