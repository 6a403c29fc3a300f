#!/bin/bash
# Training under mpirun as a user sees it: one rank prints, one folder; a rank that is killed or
# fails ends the run within seconds, --resume continues with another number of ranks, and all ranks
# stop together.
#   mpirun.sh CONR MPIRUN
set -u
conr=$1 mpirun=$2
here=$(dirname "$0")
sample=$here/../samples/fashion-mnist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
complain() { echo "$*"; failures=$((failures + 1)); }
# many N ARGS...: conr in N processes, for at most a minute
many() {
    local n=$1
    shift
    timeout 60 "$mpirun" -n "$n" "$conr" "$@" --device cpu --threads 1 >"$work/out" 2>"$work/err" </dev/null
}
ok() { many "$@" || { complain "conr $*: exit $?"; cat "$work/err"; }; }
# refused N TEXT ARGS...: fails with one line from conr, which contains TEXT
refused() {
    local n=$1 text=$2
    shift 2
    many "$n" "$@" --quiet && complain "conr $*: was not refused"
    [ "$(grep -c '^conr: ' "$work/err")" = 1 ] && grep '^conr: ' "$work/err" | grep -qF -- "$text" ||
        complain "conr $*: not one line with '$text': $(cat "$work/err")"
}

# images N FOLDER: the first N images of the sample as an IDX folder
number() { printf "\\x$(printf %02x $(($1 >> 8)))\\x$(printf %02x $(($1 & 255)))"; }
images() {
    mkdir "$2"
    { printf '\x00\x00\x08\x03\x00\x00'; number "$1"; printf '\x00\x00\x00\x1c\x00\x00\x00\x1c'
      gzip -dc "$sample"/t10k-images-idx3-ubyte.gz | tail -c +17 | head -c $((784 * $1)); } >"$2/t10k-images-idx3-ubyte"
    { printf '\x00\x00\x08\x01\x00\x00'; number "$1"
      gzip -dc "$sample"/t10k-labels-idx1-ubyte.gz | tail -c +9 | head -c "$1"; } >"$2/t10k-labels-idx1-ubyte"
}
data=$work/data
images 256 "$data"
cat >"$work/tiny.yaml" <<'Y'
encoder: small
width: 4
size: 16
hidden: 32
predictor_hidden: 32
features: 16
batch: 32
lr: 0.01
predictor_lr: 1
epochs: 4
stage1_epochs: 2
warmup_epochs: 1
restarts: 1
kmeans_warm: false
eval_every: 2
checkpoint_every: 1
log_every: 4
Y
recipe=(--recipe "$work/tiny.yaml" --data "$data")
losses() { grep -o '"loss":[^,]*' "$work/$1/log.jsonl" | cut -c8-; }

# ---- the same training on one and on two ranks, reported once
OMPI_COMM_WORLD_SIZE= "$conr" train "${recipe[@]}" --out "$work/one" --device cpu --threads 1 --quiet >"$work/one.out" || complain "one rank: exit $?"
ok 2 train "${recipe[@]}" --out "$work/two"
[ "$(grep -c '^NMI' "$work/out")" = 1 ] || complain "not one result: $(cat "$work/out")"
[ "$(grep -c '^epoch 4 ' "$work/err")" = 1 ] || complain "more than one rank prints: $(cat "$work/err")"
paste <(losses one) <(losses two) | awk 'function abs(x) { return x < 0 ? -x : x } { if (abs($1 - $2) > 1e-3) bad = 1 } END { exit bad || NR < 8 }' ||
    complain "losses differ: $(paste <(losses one) <(losses two))"
[ "$(wc -l <"$work/one/log.jsonl")" = "$(wc -l <"$work/two/log.jsonl")" ] || complain "the log of two ranks differs"
cmp -s <(cut -d, -f1,2 "$work/one/labels.csv") <(cut -d, -f1,2 "$work/two/labels.csv") || complain "two ranks end with other labels"

# ---- features: the ranks share the work, one writes
for n in 1 2; do
    many $n neighbors "$work/one/embeddings.npy" --out "$work/near$n.npy" --k 5 || complain "neighbors by $n: $(cat "$work/err")"
    many $n kmeans "$work/one/embeddings.npy" --clusters 4 --out "$work/labels$n.npy" || complain "kmeans by $n: $(cat "$work/err")"
    [ "$(grep -c 'objective' "$work/err")" = 1 ] || complain "kmeans by $n: more than one rank prints: $(cat "$work/err")"
done
cmp -s "$work/near1.npy" "$work/near2.npy" || complain "two ranks find other neighbors"
cmp -s "$work/labels1.npy" "$work/labels2.npy" || complain "two ranks find other clusters"

# ---- many rows with many clusters: each rank reads its part, and the bits are those of one
{ printf '\x93NUMPY\x01\x00\x76\x00'
  printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': (65600, 2), }"
  LC_ALL=C awk 'BEGIN { srand(3); for (i = 0; i < 131200; i++) printf "%c", 32 + int(90 * rand()) }'; } >"$work/many.npy"
for n in 1 2 4; do
    many $n kmeans "$work/many.npy" --clusters 1024 --metric euclidean --restarts 1 --iterations 3 --out "$work/labels$n.npy" --centroids "$work/centers$n.npy" ||
        complain "large kmeans by $n: $(cat "$work/err")"
    cmp -s "$work/labels1.npy" "$work/labels$n.npy" && cmp -s "$work/centers1.npy" "$work/centers$n.npy" || complain "$n ranks find other clusters of many rows"
done
refused 2 "more than the 65600 rows" kmeans "$work/many.npy" --clusters 65601 --out "$work/x.npy"

# ---- errors are reported once
refused 2 "multiple of 6" train "${recipe[@]}" --set batch=33 --set accumulate=3 --out "$work/x"
refused 2 "holds a finished run" train "${recipe[@]}" --out "$work/two"
refused 2 "one process" info "$data"
refused 2 "--recipe: is missing" train --data "$data" --out "$work/x"
# a data folder that differs by rank: the launched script chooses it
images 224 "$work/less"
cat >"$work/each" <<S
#!/bin/sh
[ "\${OMPI_COMM_WORLD_RANK:-\${PMI_RANK:-0}}" = 0 ] && data=$data || data=$work/less
exec "$conr" train --recipe "$work/tiny.yaml" --data "\$data" --out "$work/x" --device cpu --threads 1 --quiet
S
chmod +x "$work/each"
timeout 60 "$mpirun" -n 2 "$work/each" >"$work/out" 2>"$work/err" && complain "other images were not noticed"
[ "$(grep -c '^conr: ' "$work/err")" = 1 ] && grep -q '256 on rank 0, 224 on rank 1' "$work/err" || complain "other images: $(cat "$work/err")"
# if only one rank fails, its error is reported
sed "s|data=$work/less|data=$work/nowhere|" "$work/each" >"$work/each2"
chmod +x "$work/each2"
started=$SECONDS
timeout 60 "$mpirun" -n 2 "$work/each2" >"$work/out" 2>"$work/err" && complain "a rank failed, the run did not"
[ "$(grep -c '^conr: ' "$work/err")" = 1 ] && grep -q '^conr: rank 1: .*nowhere' "$work/err" || complain "a failed rank: $(cat "$work/err")"
[ $((SECONDS - started)) -lt 15 ] || complain "a failed rank ended the run after $((SECONDS - started)) s"
[ -e "$work/x/options.yaml" ] && complain "a refused run left files"

# ---- begin NAME N: starts a long run in the background, waits until it trains; pids: its ranks
begin() {
    timeout 100 "$mpirun" -n "$2" "$conr" train "${recipe[@]}" --set epochs=4000 --set stage1_epochs=2 --out "$work/$1" \
        --device cpu --threads 1 --quiet >"$work/out" 2>"$work/err" </dev/null &
    job=$!
    for ((i = 0; i < 600; i++)); do [ "$(wc -l 2>/dev/null <"$work/$1/log.jsonl" || echo 0)" -gt 12 ] && break; sleep 0.05; done
    pids=$(pgrep -f -- "^$conr train .*--out $work/$1" | sort -n)
    [ "$(echo "$pids" | wc -l)" = "$2" ] || complain "$2 ranks, but processes $pids"
}
# over NAME SECONDS: it ends within that time, and not with 0
over() {
    local started=$SECONDS
    wait $job && complain "$1: exit 0"
    [ $((SECONDS - started)) -le "$2" ] || complain "$1: ended after $((SECONDS - started)) s"
    for pid in $pids; do
        for ((i = 0; i < 100; i++)); do kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
        [ $i -lt 100 ] || complain "$1: process $pid is still running"
    done
    [ -e "$work/$1/checkpoint.safetensors" ] || complain "$1: no checkpoint"
}
# goes NAME N: --resume with N ranks continues
goes() {
    sed -i 's/^epochs:.*/epochs: 400/' "$work/$1/options.yaml"
    local at
    at=$(grep -o '"step":[0-9]*' "$work/$1/log.jsonl" | tail -1 | cut -c8-)
    timeout 20 "$mpirun" -n "$2" "$conr" train --resume --data "$data" --out "$work/$1" --device cpu --threads 1 --quiet >"$work/out" 2>"$work/err" </dev/null &
    job=$!
    for ((i = 0; i < 400; i++)); do
        now=$(grep -o '"step":[0-9]*' "$work/$1/log.jsonl" 2>/dev/null | tail -1 | cut -c8-)
        [ "${now:-0}" -gt $((at + 8)) ] && break
        sleep 0.05
    done
    [ "${now:-0}" -gt $((at + 8)) ] || complain "$1: does not resume: $(cat "$work/err")"
    kill -TERM $job 2>/dev/null
    wait $job 2>/dev/null
}
begin killed 2
kill -9 "$(echo "$pids" | tail -1)"
over killed 10
[ "$(cat "$work/out" "$work/err" | grep -ciE 'kill|signal 9|BAD TERMINATION')" -ge 1 ] || complain "a killed rank is not reported: $(cat "$work/err")"
goes killed 4
begin stopped 2
kill -INT "$(echo "$pids" | head -1)"
over stopped 10
[ "$(grep -c '^conr: .*stopped and saved' "$work/err")" = 1 ] || complain "stopped: $(cat "$work/err")"
goes stopped 1

[ "$failures" = 0 ] && echo "mpirun behaves"
exit "$failures"
