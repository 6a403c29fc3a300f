#!/bin/bash
# scripts/check-rooms.sh: the tree as it is passes; an include that points upwards, a bare name, a
# folder without a row and a table with an arrow upwards are each refused, and named.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
complain() { echo "rooms: $1"; failed=1; }

scripts/check-rooms.sh >"$work/out" 2>&1 || { complain "the tree itself is refused:"; cat "$work/out"; }

# refused NAME WANTED: the copy in $work/tree must fail with a line that has WANTED
refused() {
    scripts/check-rooms.sh "$work/tree" >"$work/out" 2>&1 && complain "$1: not refused"
    grep -qF "$2" "$work/out" || { complain "$1: does not say '$2':"; cat "$work/out"; }
}
fresh() {
    rm -rf "$work/tree" && mkdir "$work/tree" && cp -r src cli CONTRIBUTING.md "$work/tree/"
}
fresh
echo '#include "train/train.h"' >>"$work/tree/src/base/rng.c"
refused "an upward include" "base may not include train/train.h"
fresh
echo '#include "device/cpu/conv.h"' >>"$work/tree/src/neighbors/search.c"
refused "another room's private header" "neighbors may not include device/cpu/conv.h"
fresh
echo '#include "base/status.h"' >>"$work/tree/cli/main.c"
refused "the program past conr.h" "cli may not include base/status.h"
fresh
echo '#include "rng.h"' >>"$work/tree/src/base/rng.c"
refused "a bare name" "write the path from src/"
fresh
mkdir "$work/tree/src/attic" && echo '#include "base/rng.h"' >"$work/tree/src/attic/x.c"
refused "a folder without a row" "lies in attic"
fresh
sed -i 's/^| `views` | `base` |/| `views` | `base`, `train` |/' "$work/tree/CONTRIBUTING.md"
refused "a table that points upwards" "views may include train, which is not a room above it"
exit $failed
