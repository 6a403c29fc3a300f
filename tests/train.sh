#!/bin/bash
# Training as a user sees it: the folder of a run, resuming after kill -9 and Ctrl-C with the same
# bits, threads, --from, embed, assign, sweep, cluster, a full disk, JSON.  Takes seconds: a few
# hundred images of the sample and a tiny network.
set -u
conr=$1
here=$(dirname "$0")
sample=$here/../samples/fashion-mnist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
one=(--threads 1) # fastest for so little work, especially beside other tests
complain() { echo "$*"; failures=$((failures + 1)); }
# ok ARGS...: succeeds
ok() { "$conr" "$@" --quiet "${one[@]}" >"$work/out" 2>"$work/err" </dev/null || { complain "conr $*: exit $?"; cat "$work/err"; }; }
# refused CODE TEXT ARGS...: exits with CODE and one line of error that contains TEXT
refused() {
    local code=$1 text=$2 got
    shift 2
    "$conr" "$@" --quiet "${one[@]}" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ "$got" = "$code" ] || complain "conr $*: exit $got, not $code: $(cat "$work/err")"
    [ "$(wc -l <"$work/err")" = 1 ] && grep -qE '^conr: .+; .+' "$work/err" && grep -qF -- "$text" "$work/err" ||
        complain "conr $*: not one line with '$text': $(cat "$work/err")"
}
# has TEXT: the last ok printed TEXT
has() { grep -qF -- "$1" "$work/out" || complain "lacks '$1': $(cat "$work/out")"; }
# same A B: two runs ended with the same bits
same() {
    for file in model.safetensors labels.csv embeddings.npy centroids.npy; do
        cmp -s "$work/$1/$file" "$work/$2/$file" || complain "$1 and $2 differ in $file"
    done
}

# the first images of the sample as an IDX folder
n=384
data=$work/data
mkdir "$data"
number() { printf "\\x$(printf %02x $(($1 >> 8)))\\x$(printf %02x $(($1 & 255)))"; }
{ printf '\x00\x00\x08\x03\x00\x00'; number $n; printf '\x00\x00\x00\x1c\x00\x00\x00\x1c'
  gzip -dc "$sample"/t10k-images-idx3-ubyte.gz | tail -c +17 | head -c $((784 * n)); } >"$data/t10k-images-idx3-ubyte"
{ printf '\x00\x00\x08\x01\x00\x00'; number $n
  gzip -dc "$sample"/t10k-labels-idx1-ubyte.gz | tail -c +9 | head -c $n; } >"$data/t10k-labels-idx1-ubyte"
cat >"$work/tiny.yaml" <<'Y'
encoder: small
width: 4
size: 16
hidden: 32
predictor_hidden: 32
features: 16
batch: 32
lr: 0.1
predictor_lr: 1
epochs: 6
stage1_epochs: 3
warmup_epochs: 1
relax_epochs: 2
restarts: 2
eval_every: 2
checkpoint_every: 1
log_every: 4
Y
recipe=(--recipe "$work/tiny.yaml" --data "$data")

# ---- one run and its files
started=$(date +%s%N)
ok train "${recipe[@]}" --out "$work/whole"
took=$((($(date +%s%N) - started) / 1000000))
has "NMI 0."
has "built-in descriptor, without training: NMI 0."
[ "$(grep -c '"event":"baseline".*"descriptor_acc":0.*"training_acc":0' "$work/whole/log.jsonl")" = 1 ] || complain "the log has no baseline"
for file in options.yaml log.jsonl checkpoint.safetensors model.safetensors embeddings.npy centroids.npy labels.csv data.json report.html DONE; do
    [ -s "$work/whole/$file" ] || complain "a run lacks $file"
done
[ "$(wc -l <"$work/whole/labels.csv")" = $((n + 1)) ] || complain "labels.csv does not have $n images"
head -1 "$work/whole/labels.csv" | grep -q '^path,cluster,distance,boundary,label' || complain "labels.csv: $(head -1 "$work/whole/labels.csv")"
refused 1 "finished run" train "${recipe[@]}" --out "$work/whole"
# the baseline is what a training ends with, and changes nothing about it
ok train "${recipe[@]}" --out "$work/alone" --set baseline=false --no-report
grep -q 'built-in descriptor' "$work/out" && complain "baseline: false, but: $(cat "$work/out")"
grep -q baseline "$work/alone/log.jsonl" && complain "baseline: false, but the log has one"
for file in embeddings.npy centroids.npy labels.csv; do
    cmp -s "$work/whole/$file" "$work/alone/$file" || complain "$file changes with baseline: false"
done
ok train --resume --data "$data" --out "$work/whole"
has "already finished"
ok info "$work/whole"
has "a run, finished"
has "width: 4"
# signs that need no labels: in every evaluation, and in the report with what a fall means
[ "$(grep -c '"objective"' "$work/whole/log.jsonl")" = "$(grep -c '"neighbor_agreement":0\..*"modularity":' "$work/whole/log.jsonl")" ] ||
    complain "an evaluation lacks neighbor_agreement or modularity"
grep -q 'Signs that need no labels' "$work/whole/report.html" && grep -q 'If either falls' "$work/whole/report.html" ||
    complain "the report does not draw the signs that need no labels"
ok eval --truth "$work/whole/labels.csv" --truth-column label --pred "$work/whole/labels.csv" --pred-column cluster
# a report made again from the files equals that of the training, for any number of threads; moved images are found
ok report "$work/whole" --out "$work/one.html"
has "$n images in"
cmp -s "$work/one.html" "$work/whole/report.html" || complain "conr report differs from the report of the training"
one=(--threads 2)
ok report "$work/whole" --out "$work/two.html"
one=(--threads 1)
cmp -s "$work/one.html" "$work/two.html" || complain "a report differs by threads"
mv "$data" "$data-moved"
ok report "$work/whole" --out "$work/one.html"
has "without pictures"
ok report "$work/whole" --out "$work/one.html" --data "$data-moved" --json
has '"pictures": true'
mv "$data-moved" "$data"
refused 1 "holds neither a run" report "$work/none" "$work/whole" --out "$work/one.html"
refused 1 "holds no run" report "$work/none"
refused 2 "--out" report "$work/whole" "$work/whole"
refused 1 "none of the run's images" report "$work/whole" --data "$here/../golden/images"
# options.yaml is a recipe that repeats the run; threads change nothing
one=(--threads 2)
ok train --recipe "$work/whole/options.yaml" --data "$data" --out "$work/again" --json
one=(--threads 1)
grep -q '^{' "$work/out" && grep -q '"nmi"' "$work/out" && [ "$(tail -1 "$work/out")" = "}" ] || complain "train --json: $(cat "$work/out")"
same whole again

# ---- interruptions: kill -9 at three random moments, then Ctrl-C, then to the end
seed=${CONR_TEST_SEED:-$RANDOM}
echo "moments of kill -9: CONR_TEST_SEED=$seed"
RANDOM=$seed
begin=(train "${recipe[@]}" --out "$work/killed")
goon=(train --resume --data "$data" --out "$work/killed")
next=("${begin[@]}")
for i in 1 2 3; do
    "$conr" "${next[@]}" --quiet "${one[@]}" >/dev/null 2>"$work/err" &
    pid=$!
    wait_ms=$((took * (10 + RANDOM % 60) / 100))
    sleep "$(printf %d.%03d $((wait_ms / 1000)) $((wait_ms % 1000)))"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ -e "$work/killed/options.yaml" ] && next=("${goon[@]}")
done
ok "${next[@]}"
same whole killed
# nothing is logged twice, whatever came between a line and the next checkpoint
for run in whole killed; do LC_ALL=C awk -f "$here/log.awk" "$work/$run/log.jsonl" || complain "$run/log.jsonl is not in order"; done

# stopped NAME SIGNAL: starts a run, stops it midway: 130, and one line that says how to continue
stopped() {
    "$conr" train "${recipe[@]}" --set epochs=400 --set stage1_epochs=3 --out "$work/$1" --quiet "${one[@]}" >/dev/null 2>"$work/err" &
    local pid=$! i
    for ((i = 0; i < 600; i++)); do [ "$(wc -l 2>/dev/null <"$work/$1/log.jsonl" || echo 0)" -gt 14 ] && break; sleep 0.05; done
    kill -"$2" $pid
    wait $pid
    local got=$?
    [ $got = 130 ] || complain "after SIG$2: exit $got, not 130: $(cat "$work/err")"
    [ "$(wc -l <"$work/err")" = 1 ] && grep -q -- "conr train --resume --data $data --out $work/$1" "$work/err" || complain "after SIG$2: $(cat "$work/err")"
    [ -e "$work/$1/DONE" ] && complain "a stopped run is DONE"
}
stopped int INT
stopped term TERM
refused 1 "--resume" train "${recipe[@]}" --out "$work/int"
refused 2 "--set" train --resume --data "$data" --out "$work/int" --set lr=1
refused 1 "no run to resume" train --resume --data "$data" --out "$work/nowhere"
ok info "$work/int" --json
has '"finished": false'

# ---- stage 2 from a checkpoint: the same as continuing
ok train "${recipe[@]}" --from "$work/whole@3" --stage 2 --out "$work/second"
same whole second
# a complete checkpoint is kept at the end of stage 1, even if it is the first one
ok train "${recipe[@]}" --set checkpoint_every=100 --out "$work/rare"
ok train "${recipe[@]}" --from "$work/rare@3" --stage 2 --out "$work/rare2"
same whole rare2
refused 1 "@77" train "${recipe[@]}" --from "$work/whole@77" --stage 2 --out "$work/x"

# ---- the table of the paper, in small
if ! CONR="$conr" UNTIL=5 RECIPE="$work/tiny.yaml" "$(dirname "$0")/../scripts/paper.sh" "$data" "$work/paper" >"$work/out" 2>&1; then
    complain "scripts/paper.sh: $(tail -n 3 "$work/out")"
fi
for row in '| local ' '| conaff '; do has "$row"; done
[ "$(ls -d "$work"/paper/*/*/DONE | wc -l)" = 6 ] || complain "scripts/paper.sh: not six rows"
for log in "$work"/paper/*filtered/*/log.jsonl; do
    grep -q "\"epoch\":5,.*\"nmi\"" "$log" && ! grep -q "\"epoch\":6," "$log" || complain "$log: does not end after epoch 5"
done

# ---- a trained model
ok embed "$work/whole" "$data" --out "$work/f.npy"
cmp -s "$work/f.npy" "$work/whole/embeddings.npy" || complain "embed differs from the run's embeddings"
ok assign "$work/whole" "$data" --out "$work/a.csv"
cmp -s "$work/a.csv" "$work/whole/labels.csv" || complain "assign differs from the run's labels.csv"
ok assign "$work/whole" "$data" --out "$work/a.csv" --json
has '"nmi"'
refused 1 "$work/data" embed "$data" "$data" --out "$work/x.npy"

# ---- sorted into folders: images of arrays become PNG files that can be read again
ok assign "$work/whole" "$data" --out "$work/a.csv" --sort-into "$work/sorted/png"
[ "$(find "$work/sorted/png" -name '*.png' | wc -l)" = $n ] || complain "--sort-into: not $n images"
line=$(sed -n 8p "$work/whole/labels.csv") # image 6
[ -s "$work/sorted/png/cluster-$(printf %02d "$(echo "$line" | cut -d, -f2)")/t10k-images-idx3-ubyte-00006.png" ] || complain "--sort-into: image 6 is not where '$line' says"
ok kmeans "$work/sorted/png" --clusters 2 --out "$work/l.npy"
refused 1 "is not empty" assign "$work/whole" "$data" --out "$work/a.csv" --sort-into "$work/sorted/png"
refused 2 "--sort-into" assign "$work/whole" "$data" --out "$work/a.csv" --copy
# links and copies; names that collide
find "$work/sorted/png" -name '*.png' | sort | head -20 >"$work/list"
while read -r path; do mkdir -p "$work/twins/a" "$work/twins/b"; cp "$path" "$work/twins/a/"; cp "$path" "$work/twins/b/"; done <"$work/list"
ok assign "$work/whole" "$work/twins" --out "$work/a.csv" --sort-into "$work/sorted/links"
[ "$(find "$work/sorted/links" -type l | wc -l)" = 40 ] || complain "--sort-into: not 40 links"
[ "$(find -L "$work/sorted/links" -type f | xargs readlink -f | sort -u | wc -l)" = 40 ] || complain "--sort-into: links to other than 40 files"
ok assign "$work/whole" "$work/twins" --out "$work/a.csv" --sort-into "$work/sorted/copies" --copy
[ "$(find "$work/sorted/copies" -type f | wc -l)" = 40 ] || complain "--copy: not 40 files"
[ "$(ls "$work/sorted" | wc -l)" = 3 ] || complain "--sort-into left other files: $(ls "$work/sorted")"
# names that a CSV must quote: what conr writes it also reads, after the training above all
mkdir "$work/odd"
i=0
while read -r path; do cp "$path" "$work/odd/$i"$'a "quoted", comma\nand line.png'; i=$((i + 1)); done <"$work/list"
ok cluster "$work/odd" --clusters 2 --out "$work/oddrun" --set width=4 --set size=16 --set epochs=1 --set hidden=32 --set restarts=1 --set batch=16 --sort-into "$work/sorted/odd"
[ "$(find "$work/sorted/odd" -type l -printf x)" = xxxxxxxxxxxxxxxxxxxx ] || complain "--sort-into: not 20 links of odd names"
has 'sizes'
ok assign "$work/oddrun" "$work/odd" --out "$work/a.csv" --sort-into "$work/sorted/odd2"
ok eval --truth "$work/oddrun/labels.csv" --pred "$work/a.csv"
has 'NMI 1.0000'
ok report "$work/oddrun" --out "$work/odd.html"

# ---- export for other programs (export_test checks the contents)
ok export "$work/whole" --out "$work/e.onnx"
ok export "$work/whole" --out "$work/e.safetensors" --projector --json
has '"format": "safetensors"'
ok export "$work/whole/model.safetensors" --format onnx --out "$work/e2"
cmp -s "$work/e.onnx" "$work/e2" || complain "export differs from itself"
ok train "${recipe[@]}" --set epochs=1 --set stage1_epochs=1 --init "$work/e.safetensors" --out "$work/init"
# from a model with other heads only the encoder is taken
ok train "${recipe[@]}" --set epochs=1 --set stage1_epochs=1 --set hidden=48 --set lr=1e-9 --init "$work/whole/model.safetensors" --out "$work/init2"
refused 1 "holds a resnet50" train "${recipe[@]}" --init "$here/../golden/resnets/hf50.safetensors" --out "$work/init3"
refused 2 "--format" export "$work/whole" --out "$work/e"
refused 2 "no such format" export "$work/whole" --out "$work/x" --format tf
refused 1 "$work/data" export "$data" --out "$work/x.onnx"
refused 1 "cannot be written" export "$work/whole" --out "$work/no/where.onnx"

# ---- many runs; a finished sweep repeats nothing
sweep=(sweep "${recipe[@]}" --set epochs=2 --set stage1_epochs=1 --grid fr0=0.8,1 --seeds 2 --out "$work/sweep")
ok "${sweep[@]}"
[ "$(grep -c '+-' "$work/sweep/table.md")" = 2 ] || complain "table.md: $(cat "$work/sweep/table.md")"
before=$(stat -c %Y.%y "$work"/sweep/*/DONE)
ok "${sweep[@]}" --json
has '"deviation"'
[ "$before" = "$(stat -c %Y.%y "$work"/sweep/*/DONE)" ] || complain "a finished sweep trained again"
refused 1 "another --out" "${sweep[@]}" --set lr=0.2
refused 2 "--seeds" sweep "${recipe[@]}" --grid seed=1,2 --out "$work/x"

# ---- `conr cluster`, which chooses K and its own settings
ok cluster "$data" --clusters auto:2-12 --out "$work/deep/er/auto" --set width=4 --set size=16 --set epochs=4 --set hidden=32 --set restarts=2 --sort-into "$work/sorted/auto"
has "clusters"
[ "$(find "$work/sorted/auto" -name '*.png' | wc -l)" = $n ] || complain "cluster --sort-into: not $n images"
[ -s "$work/deep/er/auto/DONE" ] || complain "cluster left no DONE"
grep -q '^clusters: 0' "$work/deep/er/auto/options.yaml" && complain "cluster did not write the K it found"
refused 1 "more than the $n images" cluster "$data" --clusters 1000 --out "$work/x"
refused 2 "--clusters" cluster "$data" --clusters many --out "$work/x"
refused 2 "not a time" cluster "$data" --clusters 3 --budget soon --out "$work/x"
refused 1 "no such setting" train "${recipe[@]}" --set colour=1 --out "$work/x"
refused 1 "is a file" train "${recipe[@]}" --out "$work/tiny.yaml"
refused 1 "is a file" sweep "${recipe[@]}" --out "$work/tiny.yaml"
refused 2 "--recipe: is missing" train --data "$data" --out "$work/x"

# ---- a full disk: one line, no half-written file, and resumable
(
    trap '' XFSZ
    ulimit -f 8
    refused 1 ";" train "${recipe[@]}" --out "$work/full"
    exit $failures
) || failures=$((failures + 1))
[ -e "$work/full/DONE" ] && complain "a run on a full disk is DONE"
[ -e "$work/full/options.yaml" ] && { ok train --resume --data "$data" --out "$work/full"; same whole full; }

[ -e "$work/x/options.yaml" ] && complain "a refused run left files"
[ "$failures" = 0 ] && echo "training behaves"
exit "$failures"
