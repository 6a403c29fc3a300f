#!/bin/bash
# The program as a user sees it: help, version, exit codes, one-line errors.
set -u
conr=$1
failures=0
# expect CODE STREAM TEXT ARGS...: exits with CODE, and TEXT is in stdout (1) or stderr (2)
expect() {
    local code=$1 stream=$2 text=$3
    shift 3
    local out err got
    err=$(mktemp)
    out=$(timeout 60 "$conr" "$@" 2>"$err" </dev/null)
    got=$?
    local seen=$out
    [ "$stream" = 2 ] && seen=$(cat "$err")
    if [ "$got" != "$code" ]; then
        echo "conr $*: exit $got, not $code"; cat "$err"; failures=$((failures + 1))
    elif [[ $seen != *"$text"* ]]; then
        echo "conr $*: lacks '$text': $seen"; failures=$((failures + 1))
    elif [ "$code" != 0 ] && [ "$(wc -l <"$err")" != 1 ]; then
        echo "conr $*: not one line of error:"; cat "$err"; failures=$((failures + 1))
    elif [ "$code" != 0 ] && ! grep -qE '^conr: .+; .+' "$err"; then
        echo "conr $*: error lacks 'conr: WHAT: WHY; REMEDY':"; cat "$err"; failures=$((failures + 1))
    fi
    rm -f "$err"
}
expect 0 1 "conr 0." --version
expect 0 1 "reads JPEG, PNG, WebP, BMP" --version
expect 0 1 "Verbs:" --help
expect 0 1 "Verbs:" help
expect 0 1 "conr bench" help bench
expect 0 1 "conr bench" bench --help
for verb in cluster train sweep recipes report embed assign export info neighbors kmeans eval bench; do
    expect 0 1 "Example: conr $verb" help $verb
    expect 0 1 "auto, cpu, cuda, cuda:N" $verb --help
done
expect 2 2 "no verb given"
expect 2 2 "no such verb; see conr --help" frobnicate
expect 2 2 "no such verb" help frobnicate
expect 2 2 "no such flag" bench --frobnicate
expect 2 2 "given twice" bench --threads 1 --threads 2
expect 2 2 "needs a value" bench --threads
expect 2 2 "is empty" bench --threads ""
expect 2 2 "is empty" bench --threads=
expect 2 2 "two dashes" bench -q
expect 0 1 "conr bench" bench -h
expect 1 2 "matches no operation or shape" bench ops --only nothing
for json in "" --json; do # and no table if there are no rows
    [ -z "$("$conr" bench ops --only nothing $json 2>/dev/null)" ] || {
        echo "conr bench ops --only nothing $json: prints something"; failures=$((failures + 1)); }
done
expect 2 2 "takes no value" bench --json=1
expect 2 2 "not a whole number" bench --threads two
expect 2 2 "not a number" bench --seconds never
expect 2 2 "no such benchmark" bench everything
expect 2 2 "takes no images" bench ops ops
expect 2 2 "3 operands" bench feed a b
expect 2 2 "no images given" bench feed
expect 1 2 "nowhere" bench feed /nowhere
expect 1 2 "choose one" bench train --forward --byol
expect 1 2 "fits" bench train --batch 1000000
expect 1 2 "no such device" bench ops --device abacus
expect 1 2 "matches no operation or shape" bench ops --device ref --only 17x17

expect 0 1 "| setting" train --settings
expect 2 2 "--recipe: is missing" train
expect 1 2 "cannot be read" train --recipe nowhere.yaml --check
expect 0 1 "lr: 0.3" train --recipe "$(dirname "$0")/../recipes/demo.yaml" --check --set lr=0.2 --set lr=0.3
expect 0 1 '"lr": 0.3' train --recipe "$(dirname "$0")/../recipes/demo.yaml" --check --set lr=0.3 --json
expect 2 2 "give key=value" train --recipe "$(dirname "$0")/../recipes/demo.yaml" --check --set lr
expect 2 2 "--from" train --recipe "$(dirname "$0")/../recipes/demo.yaml" --data . --out nowhere --stage 2
expect 2 2 "--clusters: is missing" cluster . --out nowhere
for time in 1x 30m1h 1h30 -5m 0; do expect 2 2 "not a time" cluster . --clusters 3 --out nowhere --budget $time; done
expect 2 2 "5 is given twice" sweep --recipe "$(dirname "$0")/../recipes/demo.yaml" --data . --out nowhere --grid k=5,5
expect 1 2 "out of range" sweep --recipe "$(dirname "$0")/../recipes/demo.yaml" --data . --out nowhere --grid fr0=0.8,7
expect 2 2 "--out: is missing" embed a b
expect 2 2 "1 operand given" assign a --out b

# a full disk on stdout is an error, not a silent loss
if "$conr" --version >/dev/full 2>/dev/null; then echo "conr --version > /dev/full: exit 0"; failures=$((failures + 1)); fi

# one JSON object and nothing else
json=$("$conr" bench ops --device ref --seconds 0 --json) || { echo "bench --json failed"; failures=$((failures + 1)); }
[[ $json == "{"*"}" && $json == *'"op": "conv_forward"'* && $json == *'"peak_flops"'* ]] ||
    { echo "bench --json: $json"; failures=$((failures + 1)); }

json=$("$conr" bench ops --device ref --only "conv_forward 2x32x32x3 -> 64" --seconds 0 --json)
[[ $json == *'"shape": "2x32x32x3 -> 64, 3x3"'* && $json != *back* ]] || { echo "bench --only: $json"; failures=$((failures + 1)); }

# features and labels as NumPy would write them: npy FILE TYPE SHAPE BYTES...
npy() {
    local header="{'descr': '$2', 'fortran_order': False, 'shape': ($3), }"
    { printf '\x93NUMPY\x01\x00v\x00'; printf '%-117s\n' "$header"; printf "$4"; } >"$1"
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
one='\x00\x00\x80\x3f' two='\x00\x00\x00\x40' zero='\x00\x00\x00\x00' nan='\x00\x00\xc0\x7f'
npy "$folder/f.npy" '<f4' '4, 2' "$one$zero$two$zero$zero$one$zero$two"
npy "$folder/nan.npy" '<f4' '2, 2' "$one$zero$nan$zero"
npy "$folder/t.npy" '<i4' '4,' '\x07\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x03\x00\x00\x00'
expect 0 2 "2 clusters of 4 rows" kmeans "$folder/f.npy" --clusters 2 --out "$folder/l.npy" --centroids "$folder/c.npy"
expect 0 1 "NMI 1.0000  ACC 1.0000  ARI 1.0000" eval --truth "$folder/t.npy" --pred "$folder/l.npy"
expect 0 1 '"classes": 2' eval --truth "$folder/t.npy" --pred "$folder/l.npy" --json
printf 'path,label\na,cat\nb,dog\nc,cat\nd,\n' >"$folder/t.csv"
printf 'path,cluster\nd,1\nc,5\nb,0\na,5\n' >"$folder/p.csv"
expect 0 1 "3 samples, 2 clusters, 2 classes; 1 unlabeled" eval --truth "$folder/t.csv" --pred "$folder/p.csv"
expect 0 1 "NMI 1.0000  ACC 1.0000  ARI 1.0000" eval --truth "$folder/t.csv" --pred "$folder/p.csv"
printf 'path,cluster\na,1\na,2\n' >"$folder/twice.csv"
expect 1 2 "the path 'a' is in rows 2 and 3" eval --truth "$folder/t.csv" --pred "$folder/twice.csv"
printf 'path,cluster\na,1\nx,2\n' >"$folder/other.csv"
expect 1 2 "1 of its 2 paths are not in" eval --truth "$folder/t.csv" --pred "$folder/other.csv"
expect 0 2 "4 lists of 4 neighbors" neighbors "$folder/f.npy" --out "$folder/n.npy"
expect 0 2 "4 lists of 4 neighbors" neighbors "$folder/f.npy" --out "$folder/n.npy" --recall 0.9
expect 2 2 "--recall 0: finds nothing" neighbors "$folder/f.npy" --out "$folder/x.npy" --recall 0
expect 2 2 "--recall" neighbors "$folder/f.npy" --out "$folder/x.npy" --recall 1.5
expect 2 2 "--recall" neighbors "$folder/f.npy" --out "$folder/x.npy" --recall nan
expect 1 2 "row 1 has NaN" neighbors "$folder/nan.npy" --out "$folder/x.npy"
expect 1 2 "5 are more than the 4 rows" kmeans "$folder/f.npy" --clusters 5 --out "$folder/x.npy"
expect 1 2 "cannot be read" neighbors "$folder/missing.npy" --out "$folder/x.npy"
expect 1 2 "cannot be written" kmeans "$folder/f.npy" --clusters 2 --out "$folder/no/such/l.npy"
expect 2 2 "--clusters: is missing" kmeans "$folder/f.npy" --out "$folder/x.npy"
expect 2 2 "--metric" neighbors "$folder/f.npy" --out "$folder/x.npy" --metric manhattan
expect 2 2 "--truth: is missing" eval --pred "$folder/l.npy"
expect 1 2 "is the path spelled right" info "$folder/nowhere"
expect 2 2 "no completion" completion fish
expect 2 2 "--format: is missing" export "$folder" --out "$folder/x.npy"
expect 1 2 "holds no model" export "$folder" --out "$folder/x.npy" --format onnx
expect 1 2 "is not empty" cluster "$folder" --clusters 2 --out "$folder/run" --sort-into "$folder"
expect 2 2 "no such labels" info "$folder" --labels odd
mkdir "$folder/empty"
expect 1 2 "$folder/empty" info "$folder/empty"
expect 0 1 "% of the step alone" bench feed "$(dirname "$0")/../samples/fashion-mnist" --encoder small \
    --width 4 --size 16 --batch 8 --hidden 8 --features 4 --seconds 0
expect 0 1 "NMI 0." kmeans "$(dirname "$0")/../samples/fashion-mnist" --clusters 10 --restarts 1 --out "$folder/s.npy"
[ -e "$folder/x.npy" ] && { echo "a failed verb left a file behind"; failures=$((failures + 1)); }

[ "$failures" = 0 ] && echo "the program behaves"
exit "$failures"
