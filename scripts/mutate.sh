#!/bin/bash
# Plants small bugs one at a time, builds, and runs the tests: each must be caught.
#
#   scripts/mutate.sh [--named] [NAME...]    the bugs of tests/mutations.txt, or only these
#
# Works in a copy of the tree.  Runs the tests that the list names for a bug and, if they pass, all
# of them (not with --named, which is quicker).  A bug whose text is gone from the source, or that
# does not compile, is stale: the list must follow the code.  Exits 1 if a bug survives or is stale.
set -u
cd "$(dirname "$0")/.."
named=
[ "${1:-}" = --named ] && { named=1; shift; }
wanted=" $* "
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -co --exclude-standard -z | tar -c --null -T - | tar -x -C "$copy"
cd "$copy" || exit 1
command -v ccache >/dev/null && export CMAKE_C_COMPILER_LAUNCHER=ccache
cmake --preset cpu >/dev/null && cmake --build build >/dev/null || { echo "the tree does not build"; exit 1; }

cp tests/mutations.txt build/list

# the targets that a test needs
targets() {
    for t in "$@"; do
        case $t in
            *_test) [ ! -e "build/$t" ] || echo "$t" ;; # a test that is still to be written
            faults) echo fault_shim conr_program ;;
            *) echo conr_program ;;
        esac
    done | tr ' ' '\n' | sort -u
}
# caught TEST...: builds and runs them, or all of them; 2 if it does not compile
caught() {
    local only=()
    [ $# = 0 ] || only=(-R "^($(echo "$*" | tr ' ' '|'))$")
    local build=()
    [ $# = 0 ] || mapfile -t build < <(targets "$@")
    [ $# = 0 ] || [ ${#build[@]} -gt 0 ] || return 1
    cmake --build build ${build:+--target "${build[@]}"} >build/mutant.log 2>&1 </dev/null 3<&- ||
        return 2
    ctest --test-dir build -j 2 --timeout 300 --stop-on-failure "${only[@]}" >build/mutant.log 2>&1 </dev/null 3<&- &&
        return 1
    grep -m1 -oE '[a-z_0-9]+ \.+.*(Failed|Timeout|Exception)' build/mutant.log | sed 's/ .*//' >build/mutant.why
    return 0
}

planted=0 found=0 survivors='' stale=''
while IFS='|' read -r name file tests old new <&3; do
    case $name in ''|'#'*) continue ;; esac
    [ "$wanted" = "  " ] || [[ $wanted == *" $name "* ]] || continue
    cp "$file" build/original
    if ! old=$old new=$new python3 - "$file" <<'P'; then
import os, sys
path, old, new = sys.argv[1], os.environ["old"], os.environ["new"]
text = open(path).read()
if text.count(old) != 1:
    sys.exit(1)
open(path, "w").write(text.replace(old, new))
P
        stale+=" $name"
        echo "stale     $name: '$old' is not once in $file"
        continue
    fi
    planted=$((planted + 1))
    started=$SECONDS
    # shellcheck disable=SC2086
    caught $tests
    rc=$?
    [ $rc != 1 ] || [ -n "$named" ] || { caught; rc=$?; }
    case $rc in
        0)
            found=$((found + 1))
            echo "caught    $name by $(cat build/mutant.why) ($((SECONDS - started)) s)"
            ;;
        1)
            survivors+=" $name"
            echo "SURVIVED  $name ($((SECONDS - started)) s)"
            ;;
        *)
            planted=$((planted - 1))
            stale+=" $name"
            echo "stale     $name: does not compile: $(grep -m1 error: build/mutant.log)"
            ;;
    esac
    cp build/original "$file"
done 3<build/list
echo "$found of $planted planted bugs were caught${survivors:+; survived:$survivors}${stale:+; stale:$stale}"
[ "$found" = "$planted" ] && [ -z "$stale" ]
