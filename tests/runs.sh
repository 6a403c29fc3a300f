#!/bin/bash
# What happens to a run that is stopped, killed, started twice, or whose files were damaged: it is
# saved, refused or repaired, and says so.  Takes seconds: a few images of the sample and a tiny
# network.
set -u
conr=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
sample=$here/../samples/fashion-mnist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
complain() { echo "$*" | head -c 1000; failures=$((failures + 1)); }
# ok ARGS...: succeeds
ok() { "$conr" "$@" --quiet --threads 1 >"$work/out" 2>"$work/err" </dev/null || complain "conr $*: exit $?: $(cat "$work/err")"; }
# refused TEXT ARGS...: exits with 1 and one line of error that contains TEXT
refused() {
    local text=$1 got
    shift
    timeout -s KILL 60 "$conr" "$@" --quiet --threads 1 >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ "$got" = 1 ] || complain "conr $*: exit $got, not 1: $(cat "$work/err")"
    [ "$(wc -l <"$work/err")" = 1 ] && grep -qE '^conr: .+; .+' "$work/err" && grep -qF -- "$text" "$work/err" ||
        complain "conr $*: not one line with '$text': $(cat "$work/err")"
}
# same A B: two runs ended with the same bits
same() {
    for file in model.safetensors labels.csv embeddings.npy centroids.npy; do
        cmp -s "$work/$1/$file" "$work/$2/$file" || complain "$1 and $2 differ in $file"
    done
}
# until_lines RUN N: waits for the Nth line of its log
until_lines() {
    local i
    for ((i = 0; i < 600; i++)); do [ "$(wc -l 2>/dev/null <"$work/$1/log.jsonl" || echo 0)" -ge "$2" ] && return; sleep 0.02; done
    complain "$1: its log does not reach $2 lines"
}
# steps_ascend RUN: its log is in order
steps_ascend() { LC_ALL=C awk -f "$here/log.awk" "$work/$1/log.jsonl" || complain "$1/log.jsonl is not in order"; }

# the first images of the sample as an IDX folder
n=128
data=$work/data
mkdir "$data"
{ printf '\x00\x00\x08\x03\x00\x00\x00\x80\x00\x00\x00\x1c\x00\x00\x00\x1c'
  gzip -dc "$sample"/t10k-images-idx3-ubyte.gz | tail -c +17 | head -c $((784 * n)); } >"$data/t10k-images-idx3-ubyte"
{ printf '\x00\x00\x08\x01\x00\x00\x00\x80'
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
epochs: 6
stage1_epochs: 3
warmup_epochs: 1
relax_epochs: 2
restarts: 2
eval_every: 2
checkpoint_every: 1
log_every: 2
Y
recipe=(--recipe "$work/tiny.yaml" --data "$data" --no-report)
long=("${recipe[@]}" --set epochs=5000 --set stage1_epochs=4000 --set eval_every=0)
resume() { local run=$1; shift; ok train --resume --data "$data" --out "$work/$run" --no-report "$@"; }
ok train "${recipe[@]}" --out "$work/whole"

# ---- signals: `timeout` sends two at once; both together are one request to stop
"$conr" train "${long[@]}" --out "$work/twice" --quiet --threads 1 >/dev/null 2>"$work/err" &
pid=$!
until_lines twice 4
kill -TERM $pid; kill -INT $pid # two different ones: two equal ones may arrive as one
kill -TERM $pid
wait $pid
got=$?
[ $got = 130 ] && grep -q "stopped and saved" "$work/err" && [ -e "$work/twice/checkpoint.safetensors" ] ||
    complain "three signals in a row: exit $got, '$(cat "$work/err")'"

# ---- a terminal that is closed (SIGHUP) is a request to stop; under nohup it is nothing
"$conr" train "${long[@]}" --out "$work/hangup" --quiet --threads 1 >/dev/null 2>"$work/err" &
pid=$!
until_lines hangup 4
kill -HUP $pid
wait $pid
got=$?
[ $got = 130 ] && grep -q "stopped and saved" "$work/err" && [ -e "$work/hangup/checkpoint.safetensors" ] ||
    complain "SIGHUP: exit $got, '$(cat "$work/err")'"
nohup "$conr" train "${long[@]}" --out "$work/nohup" --quiet --threads 1 >/dev/null 2>"$work/err" </dev/null &
pid=$!
until_lines nohup 4
kill -HUP $pid
until_lines nohup $(($(wc -l <"$work/nohup/log.jsonl") + 2)) # it goes on
kill -TERM $pid
wait $pid
got=$?
[ $got = 130 ] || complain "SIGHUP under nohup, then SIGTERM: exit $got, '$(cat "$work/err")'"

# ---- a closed pipe is a request to stop, too: `conr train ... 2>&1 | head`
timeout -s KILL 60 "$conr" train "${recipe[@]}" --set epochs=5000 --set stage1_epochs=5000 --set eval_every=1 --out "$work/pipe" --threads 1 2>&1 >/dev/null | head -n 1 >/dev/null
got=${PIPESTATUS[0]}
[ "$got" = 130 ] && [ -e "$work/pipe/checkpoint.safetensors" ] || complain "a closed pipe: exit $got, $(ls "$work/pipe")"
"$conr" train --settings | head -n 1 >"$work/out"
got=${PIPESTATUS[0]}
[ "$got" = 0 ] || [ "$got" = 141 ] || complain "a reader of results that leaves: exit $got"

# ---- without standard streams nothing else takes their place
"$conr" train "${recipe[@]}" --out "$work/closed" --threads 1 >"$work/out" 2>&-
"$conr" train "${recipe[@]}" --out "$work/closed3" --threads 1 <&- >&- 2>&-
for run in closed closed3; do same whole $run; steps_ascend $run; done

# ---- one writer: the second is told who the first is; kill -9 ends its claim
both() { # both ARGS...: the same command twice at once; exactly one succeeds
    local first second a b
    "$conr" "$@" --quiet --threads 1 >/dev/null 2>"$work/err1" </dev/null & first=$!
    "$conr" "$@" --quiet --threads 1 >/dev/null 2>"$work/err2" </dev/null & second=$!
    wait $first; a=$?
    wait $second; b=$?
    [ $((a + b)) = 1 ] && [ "$(cat "$work/err1" "$work/err2" | grep -c '^conr: ')" = 1 ] || complain "$1 twice at once: exit $a and $b: $(cat "$work/err1" "$work/err2")"
    if [ $a = 1 ]; then grep -qE "process $second|unfinished run|finished run" "$work/err1"; else grep -qE "process $first|unfinished run|finished run" "$work/err2"; fi ||
        complain "$1 twice at once: who is first? $(cat "$work/err1" "$work/err2")"
}
both train "${recipe[@]}" --set baseline=false --out "$work/both"
same whole both
"$conr" train "${long[@]}" --out "$work/one" --quiet --threads 1 >/dev/null 2>"$work/err" &
pid=$!
until_lines one 30
refused "process $pid" train --resume --data "$data" --out "$work/one"
refused "process $pid" export "$work/whole" --out "$work/one/x.onnx"
refused "process $pid" report "$work/whole" --out "$work/one/x.html"
ok export "$work/whole" --out "$work/x.onnx"
ok export "$work/whole" --out "$work/whole/x.onnx"
kill -9 $pid
wait $pid 2>/dev/null
# what a killed writer left is removed by the next; what others put there is not
echo >"$work/one/.model.safetensors.999999999-0.tmp"
echo >"$work/one/.model.safetensors.$$-0.tmp" # of a process that lives
echo >"$work/one/.mine.tmp"
sed -i 's/^epochs: 5000/epochs: 6/; s/^stage1_epochs: 4000/stage1_epochs: 3/' "$work/one/options.yaml"
# fewer epochs than the run has done already
refused "epochs is 6" train --resume --data "$data" --out "$work/one"
[ -e "$work/one/.model.safetensors.999999999-0.tmp" ] && complain "a temporary file of a killed writer stays"
[ -e "$work/one/.model.safetensors.$$-0.tmp" ] && [ -e "$work/one/.mine.tmp" ] || complain "files of others were removed"
[ -e "$work/one/.lock" ] && complain "a lock that nobody holds stays"
[ "$(ls -A "$work/whole" | grep -c lock)" = 0 ] || complain "a finished run is locked"

# ---- killed inside the trial of --budget, then before the first checkpoint of the run
ok train "${recipe[@]}" --set lr=0.3 --out "$work/other"
mkdir "$work/trial"
cp "$work/other/checkpoint.safetensors" "$work/trial/checkpoint.new.safetensors" # as the trial leaves it
"$conr" train "${recipe[@]}" --set checkpoint_every=1000 --set stage1_epochs=6 --set epochs=6000 --set stage1_epochs=6000 --set eval_every=0 --out "$work/trial" --quiet --threads 1 >/dev/null 2>"$work/err" &
pid=$!
until_lines trial 2
kill -9 $pid
wait $pid 2>/dev/null
[ -e "$work/trial/checkpoint.new.safetensors" ] && complain "the trial's checkpoint is still there, to be taken for the run's"
sed -i 's/^epochs: .*/epochs: 6/; s/^stage1_epochs: .*/stage1_epochs: 3/; s/^checkpoint_every: .*/checkpoint_every: 1/; s/^eval_every: .*/eval_every: 2/' "$work/trial/options.yaml"
resume trial
same whole trial
steps_ascend trial

# ---- the same images under another name are the same; others under the same name are not
ok assign "$work/whole" "$data" --out "$work/a.csv" --sort-into "$work/png" --copy
images=(--recipe "$work/tiny.yaml" --set epochs=2 --set stage1_epochs=1 --no-report)
ok train "${images[@]}" --data "$work/png" --out "$work/known"
# further SRC: resumes the last moment of that run with these images
further() { rm -f "$work/known/DONE"; ok train --resume --data "$1" --out "$work/known" --no-report; }
cd "$work" || exit 1
further png
further ./png
further png/
further "$work/../$(basename "$work")/png"
cp -r png copied # other times
further copied
mv png moved
further moved
cd - >/dev/null || exit 1
# other SRC [RUN]: is refused
other() { rm -f "$work/${2:-known}/DONE"; refused "other images" train --resume --data "$work/$1" --out "$work/${2:-known}"; }
first=$(find "$work/copied" -name '*.png' | sort | head -n 1) second=$(find "$work/copied" -name '*.png' | sort | tail -n 1)
mv "$first" "$work/swap" && mv "$second" "$first" && mv "$work/swap" "$second" # as many, other contents
other copied
cp -r "$work/moved" "$work/renamed"
first=$(find "$work/renamed" -name '*.png' | sort | head -n 1)
mv "$first" "${first%.png}x.png"
other renamed
cp -r "$data" "$work/array"
ok train "${images[@]}" --data "$work/array" --out "$work/pixels"
printf '\x55' | dd of="$work/array/t10k-images-idx3-ubyte" bs=1 seek=5000 conv=notrunc 2>/dev/null # one pixel
other array pixels

[ "$failures" = 0 ] && echo "runs survive"
exit "$failures"
