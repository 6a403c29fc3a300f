#!/bin/bash
# Exit codes and outputs that scripts rely on: of eval, sweep, resume, full and closed outputs, times
# and ranges of flags, skipped images.  Takes seconds: two dozen tiny images.
set -u
conr=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
python=/usr/bin/python3
[ -x $python ] || python=python3
command -v $python >/dev/null || { echo "skipped: no python3"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
complain() { echo "$*"; failures=$((failures + 1)); }
# gives CODE TEXT ARGS...: exits with CODE; TEXT is in its output
gives() {
    local code=$1 text=$2 got
    shift 2
    timeout 60 "$conr" "$@" --threads 1 >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ "$got" = "$code" ] || complain "conr $*: exit $got, not $code: $(cat "$work/err")"
    [ -z "$text" ] || cat "$work/out" "$work/err" | grep -qF -- "$text" || complain "conr $*: lacks '$text': $(cat "$work/out" "$work/err")"
    [ "$code" = 0 ] || [ "$(grep -cv '^warning' "$work/err")" = 1 ] || [ "${lines:-1}" != 1 ] || complain "conr $*: not one line: $(cat "$work/err")"
}
PYTHONDONTWRITEBYTECODE=1 $python -c "import sys; sys.path.insert(0, '$here/faults'); import verbs; verbs.make_inputs('$work/in')" || exit 1
cd "$work/in" || exit 1

# ---- labels of unequal length; a device that is full
head -c 160 l.npy >short.npy # the header, and 4 of the 30 labels
sed -i 's/(30,)/(4,) /' short.npy
gives 1 "4 labels, but t.npy has 30" eval --truth t.npy --pred short.npy
gives 0 "NMI" eval --truth t.npy --pred l.npy
if [ -w /dev/full ]; then
    for json in "" --json; do
        "$conr" eval --truth t.npy --pred l.npy $json >/dev/full 2>"$work/err"
        got=$?
        [ $got = 1 ] && grep -q '^conr: standard output: .*; ' "$work/err" || complain "eval $json >/dev/full: exit $got: $(cat "$work/err")"
    done
fi

# ---- flags: times, ranges, --
gives 2 "not a time" cluster data --clusters 2 --out ../x --budget 1h30
gives 2 "not a time" cluster data --clusters 2 --out ../x --budget 30m1h
"$conr" embed run data --out ../x --threads 1025 >/dev/null 2>"$work/err"
[ $? = 2 ] && grep -qF "from 0 to 1024" "$work/err" || complain "--threads 1025: $(cat "$work/err")"
cp f.npy ./--odd.npy
"$conr" neighbors --out ../n.npy --quiet -- --odd.npy || complain "a file name after --: exit $?"
[ -e ../x ] && complain "a refused verb left files"

# ---- one run, resumed with flags that contradict it, and what is printed about it
small=(--recipe tiny.yaml --data data)
gives 0 "NMI" train "${small[@]}" --out ../run --quiet
grep -q "balanced ACC" "$work/out" && complain "balanced ACC of classes of one size"
for flag in "seed 2" "clusters 4" "set lr=1" "split train" "budget 1m"; do
    # shellcheck disable=SC2086
    gives 2 "--${flag% *}" train --resume --data data --out ../run --${flag% *} ${flag#* }
done
last=$(grep '"nmi"' ../run/log.jsonl | tail -n 1 | sed 's/.*"nmi":\([0-9.]*\).*/\1/')
first=$(grep '"nmi"' ../run/log.jsonl | head -n 1 | sed 's/.*"nmi":\([0-9.]*\).*/\1/')
[ "$first" != "$last" ] || complain "the first and the last NMI are alike: this test shows nothing"
gives 0 "\"nmi\": $last" info ../run --json
gives 0 "balanced ACC" train "${small[@]}" --set batch=8 --long-tail 6 --out ../tail --quiet

# ---- --sort-into a folder that is not empty is refused before any work
gives 1 "is not empty" cluster data --clusters 2 --out ../late --sort-into data --quiet
[ -e ../late/options.yaml ] && complain "--sort-into was checked after the training began"

# ---- an image that cannot be read is counted and named, once
cp -r data damaged
for i in 1 2 3; do mkdir damaged/more$i; cp data/dark/*.png damaged/more$i; done # 60 images: 5 % are 3
for i in 03 04; do head -c 60 data/dark/i$i.png >damaged/more1/i$i.png; done
for verb in "embed ../run damaged --out ../e.npy" "assign ../run damaged --out ../a.csv"; do
    # shellcheck disable=SC2086
    gives 0 "2 of 60 images were skipped; the first: " $verb --quiet
    [ "$(grep -c skipped "$work/err")" = 1 ] || complain "conr $verb: $(cat "$work/err")"
    gives 0 "" ${verb/damaged/data} --quiet
    [ -s "$work/err" ] && complain "conr $verb: warns without a reason: $(cat "$work/err")"
done

# ---- sweeps: a failed run; mean and sample deviation; runs that start elsewhere
sweep=(sweep "${small[@]}" --set epochs=2 --set stage1_epochs=1 --quiet)
lines=2 gives 1 "1 of 2 runs failed; sweep.json says why" "${sweep[@]}" --grid clusters=2,30 --out ../failed
grep -q '"clusters 30' ../failed/sweep.json || complain "sweep.json does not say why a run failed"
gives 0 "deviation" "${sweep[@]}" --grid fr0=0.8 --seeds 2 --out ../two --json
$python - "$work/out" <<'P' || complain "mean and deviation of a sweep"
import json, statistics, sys
for c in json.load(open(sys.argv[1]))["combinations"]:
    for score in ("nmi", "acc"):
        x = [r["scores"][score] for r in c["runs"]]
        assert len(x) == 2 and x[0] != x[1], f"{score} {x}: this test shows nothing"
        assert abs(c["mean"][score] - statistics.mean(x)) < 1e-6
        assert abs(c["deviation"][score] - statistics.stdev(x)) < 1e-6, (c, x)
P
gives 0 "fr0" "${sweep[@]}" --grid fr0=1 --from ../run@2 --stage 2 --set epochs=3 --out ../from
gives 1 "its runs start from ../run@2" "${sweep[@]}" --grid fr0=1 --set epochs=3 --out ../from

[ "$failures" = 0 ] && echo "exit codes and outputs are right"
exit "$failures"
