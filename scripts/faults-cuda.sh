#!/bin/bash
# Faults on a GPU: calls of the CUDA runtime that fail, memory that others have taken, a GPU that is
# lost, and races in shared memory.  Needs a GPU and a CUDA build; part of `make test-cuda`.
#
#     scripts/faults-cuda.sh [BUILD_DIR] [--short | --faults | --races]
#
# --short: a minute of faults; no races.  --faults, --races: only these.  Races need
# compute-sanitizer, a part of the CUDA toolkit.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
build='build-cuda'
if [ $# -gt 0 ] && [ "${1#--}" = "$1" ]; then
    build=$1
    shift
fi
what=${1:---all}
build=$(cd "$build" && pwd)
failed=0
step() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }
try() { "$@" || { echo "FAILED ($?): $*"; failed=1; }; }

[ -e "$build/libconr_faulty.so" ] || { echo "skipped: no libconr_faulty.so in $build"; exit 77; }
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
"$build/cuda_hog" 1000000 </dev/null >/dev/null || { echo "skipped: no GPU"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" # tests write their choices of engines into the current folder

if [ "$what" != --races ]; then
    step "a GPU that is lost between two calls"
    try "$build/lost_cuda_test"
    step "failed calls, lost GPUs, and full memory, over the verbs"
    seconds=150
    [ "$what" = --short ] && seconds=40
    try env PYTHONDONTWRITEBYTECODE=1 python3 "$here/tests/faults/cuda.py" "$build" --seconds $seconds
fi

# Every kernel of ours that uses shared memory, on small shapes:
#     features_test   boundary, losses, neighbors, prototypes, rows, top_k, views
#     sets_test       kmeans, kmeans_seeding, kmeans_assign (few), kmeans_lloyd, kmeans_nearest, search
#     arrays_cuda_test   the same through the public calls: assign and its scaling, the filter
#     cuda_test       norm (sums), stem, conv64, plain, pools
# The convolutions of cuda_test are told not to use cuDNN's engines (-1 in the file of choices): its
# kernels are not ours, and to watch them would take hours.
watch() { # TOOL PROGRAM ARGUMENTS
    local tool=$1 name
    shift
    name="$tool $(basename "$1") ${*:2}"
    local began=$SECONDS status=0
    timeout 280 "$sanitizer" --tool "$tool" --error-exitcode 9 "$@" >"$work/log" 2>&1 || status=$?
    printf '%-58s %4d s  exit %d  %s\n' "$name" $((SECONDS - began)) $status "$(grep -o 'SUMMARY: .*' "$work/log" | tail -1)"
    [ $status = 0 ] && return
    grep -v '^\[  ' "$work/log" | tail -40
    failed=1
}

if [ "$what" = --all ] || [ "$what" = --races ]; then
    step "compute-sanitizer"
    sanitizer=$(command -v compute-sanitizer || true)
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    for at in "$(dirname "$(readlink -f "$nvcc")")" /usr/local/cuda/bin /usr/local/cuda/compute-sanitizer; do
        [ -n "$sanitizer" ] || [ ! -x "$at/compute-sanitizer" ] || sanitizer=$at/compute-sanitizer
    done
    if [ -z "$sanitizer" ]; then
        echo "FAILED: compute-sanitizer was not found; install it (cuda-sanitizer-13-0), or put it on the PATH"
        exit 1
    fi
    export CONR_CUDA_ENGINES=$work/engines.txt CONR_TEST_SMALL=1
    try "$build/cuda_test" '*equals_ref' >"$work/first" 2>&1 # writes the keys of all convolutions
    sed -i 's/ | .* | / | -1 0 | /' engines.txt
    for tool in racecheck memcheck; do
        watch $tool "$build/features_test" quick
        watch $tool "$build/sets_test" quick
        watch $tool "$build/arrays_cuda_test" '*assign*'
        watch $tool "$build/arrays_cuda_test" '*tiny*'
        watch $tool "$build/arrays_cuda_test" 'boundary*'
        watch $tool "$build/cuda_test" '*equals_ref'
    done
fi
step "$([ $failed = 0 ] && echo "all passed" || echo "something failed")"
exit $failed
