#!/bin/bash
# Memory that runs out while JSON is made: --json prints the whole object or fails with one line, and
# a training that ends well has left files that can be read.
#   json.sh CONR SHIM (tests/scarce_json.c, built)
set -u
conr=$1
shim=$2
sample=$(dirname "$0")/../samples/fashion-mnist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0 cases=0
complain() { echo "$*"; failures=$((failures + 1)); }
# scarce N ARGS...: conr with allocation N of jansson failing; $reached: whether it got there
scarce() {
    local n=$1
    shift
    rm -f "$work/mark"
    SCARCE_JSON=$n SCARCE_MARK=$work/mark LD_PRELOAD=$shim "$conr" "$@" --threads 1 --quiet >"$work/out" 2>"$work/err" </dev/null
    got=$?
    reached=no
    [ -e "$work/mark" ] && reached=yes
    cases=$((cases + 1))
    sed -i '/^warning: /d' "$work/err"
    [ "$got" = 0 ] || { [ "$(wc -l <"$work/err")" = 1 ] && grep -qE '^conr: .+; .+' "$work/err"; } ||
        complain "conr $*, allocation $n: exit $got and not one line: $(cat "$work/err")"
}
# walk ARGS...: the output is all there or nothing, whichever allocation fails
walk() {
    "$conr" "$@" --json --threads 1 --quiet >"$work/whole" 2>"$work/err" || { complain "conr $*: $(cat "$work/err")"; return; }
    local n=0
    reached=yes
    while [ $reached = yes ]; do
        scarce $n "$@" --json
        if [ $got = 0 ]; then
            cmp -s "$work/out" "$work/whole" || complain "conr $*, allocation $n: exit 0, but $(head -c 300 "$work/out")"
        else
            [ -s "$work/out" ] && complain "conr $*, allocation $n: failed, but printed $(head -c 300 "$work/out")"
        fi
        n=$((n < 8 ? n + 1 : n * 17 / 10))
    done
    [ $n -gt 3 ] || complain "conr $*: the shim failed nothing"
}

# the first images of the sample, as an IDX file
data=$work/data-images-idx3-ubyte
{ printf '\x00\x00\x08\x03\x00\x00\x00\x20\x00\x00\x00\x1c\x00\x00\x00\x1c'
  gzip -dc "$sample"/t10k-images-idx3-ubyte.gz | tail -c +17 | head -c $((784 * 32)); } >"$data"
cat >"$work/tiny.yaml" <<'Y'
encoder: small
width: 4
size: 16
hidden: 16
predictor_hidden: 16
features: 8
batch: 16
epochs: 1
stage1_epochs: 1
warmup_epochs: 0
restarts: 1
clusters: 2
Y
train=(train --recipe "$work/tiny.yaml" --data "$data" --no-report)
"$conr" "${train[@]}" --out "$work/run" --quiet --threads 1 >"$work/said" 2>&1 || complain "train: exit $?"
grep -q '^2 clusters, silhouette .*, neighbor agreement [01]\.' "$work/said" || complain "train without labels: $(cat "$work/said")"
n=0
reached=yes
while [ $reached = yes ]; do
    rm -rf "$work/scarce"
    scarce $n "${train[@]}" --out "$work/scarce"
    if [ -e "$work/scarce/DONE" ]; then
        [ $got = 0 ] || complain "a training with allocation $n failed: DONE, but exit $got"
        for file in model.safetensors data.json; do
            cmp -s "$work/scarce/$file" "$work/run/$file" || complain "a training with allocation $n failed: DONE, but another $file"
        done
        for key in nmi silhouette runs deviation neighbor_agreement modularity; do
            [ "$(grep -c "\"$key\"" "$work/scarce/log.jsonl")" = "$(grep -c "\"$key\"" "$work/run/log.jsonl")" ] ||
                complain "a training with allocation $n failed: DONE, but the log lacks $key"
        done
    else
        [ $got = 0 ] && complain "a training with allocation $n failed: exit 0, but not DONE"
    fi
    n=$((n < 12 ? n + 3 : n * 13 / 10))
done

ln "$work/run/labels.csv" "$work/labels.csv"
walk eval --truth "$work/labels.csv" --pred "$work/labels.csv"
walk info "$data"
walk info "$work/run"
walk train --check --recipe "$work/tiny.yaml"
walk train --settings
walk train --resume --data "$data" --out "$work/run"
walk kmeans "$work/run/embeddings.npy" --clusters 2 --restarts 2 --out "$work/l.npy"
walk neighbors "$work/run/embeddings.npy" --out "$work/n.npy"
walk embed "$work/run" "$data" --out "$work/f.npy"
walk assign "$work/run" "$data" --out "$work/a.csv"
walk export "$work/run" --out "$work/e.onnx"
walk report "$work/run" --out "$work/r.html"
[ "$failures" = 0 ] && echo "JSON is whole or missing, in $cases cases"
exit "$failures"
