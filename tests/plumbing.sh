#!/bin/bash
# What other programs read: labels of k-means as CSV, the table of a sweep as CSV and LaTeX, curves for
# TensorBoard.  With a Python that has tensorboard, that package reads them, too.
set -u
conr=$(realpath "$1")
sample=$(realpath "$(dirname "$0")/../samples/fashion-mnist")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
complain() { echo "$*"; failures=$((failures + 1)); }
# refused CODE WORDS ARGS...
refused() {
    local code=$1 words=$2 says got
    shift 2
    says=$("$conr" "$@" 2>&1) && got=0 || got=$?
    [ "$got" = "$code" ] && [[ $says == *"$words"* ]] && [ "$(wc -l <<<"$says")" = 1 ] || complain "conr $*: exit $got, '$says'"
}

# 60 rows of 3 numbers, in two groups
{ printf '\x93NUMPY\x01\x00v\x00'; printf '%-117s\n' "{'descr': '<i2', 'fortran_order': False, 'shape': (60, 3), }"
    for i in $(seq 60); do printf '%b' "\\x0$((i % 2 * 9))\\x00\\x0$((9 - i % 2 * 9))\\x00\\x01\\x00"; done; } >f.npy
"$conr" kmeans f.npy --clusters 2 --out l.csv --quiet || complain "kmeans --out l.csv: fails"
"$conr" kmeans f.npy --clusters 2 --out l.npy --quiet || complain "kmeans --out l.npy: fails"
[ "$(head -1 l.csv)" = path,cluster ] && [ "$(wc -l <l.csv)" = 61 ] && [ "$(sed -n 2p l.csv | cut -d, -f1)" = "f.npy#0" ] ||
    { complain "l.csv is not path,cluster of 60 rows:"; head -3 l.csv; }
"$conr" eval --truth l.npy --pred l.csv | grep -q "NMI 1.0000" || complain "l.csv and l.npy differ"
# images by their names; with labels, scores
"$conr" kmeans "$sample" --clusters 4 --restarts 1 --size 8 --out images.csv --quiet >scores || complain "kmeans of images: fails"
grep -q "^NMI 0\.[1-9]" scores || complain "kmeans of images with labels: no scores from the CSV file: $(cat scores)"
[ "$(sort -u images.csv | wc -l)" = "$(wc -l <images.csv)" ] && [ "$(sed -n 3p images.csv | cut -d, -f1 | grep -c '#1$')" = 1 ] ||
    { complain "images.csv does not name every image:"; head -3 images.csv; }

# a sweep over features: every combination has a row, whose mean is that of its runs
"$conr" sweep --features f.npy --clusters 2 --grid method=kmeans,graph --grid k1=5 --seeds 2 --set k=5 --out s --quiet >/dev/null ||
    complain "sweep: fails"
[ "$(head -1 s/table.csv | cut -d, -f1-3)" = method,k1,runs ] && [ "$(wc -l <s/table.csv)" = 3 ] || { complain "table.csv:"; cat s/table.csv; }
python3 - s <<'P' || complain "table.csv, table.tex: not what sweep.json has"
import csv, json, sys
folder = sys.argv[1]
entries = json.load(open(f"{folder}/sweep.json"))["combinations"]
rows = list(csv.DictReader(open(f"{folder}/table.csv")))
tex = open(f"{folder}/table.tex").read()
assert len(rows) == len(entries) == 2
for row, entry in zip(rows, entries):
    assert row["method"] == entry["settings"]["method"] and row["k1"] == entry["settings"]["k1"]
    assert row["runs"] == "2" and entry["mean"], row
    for key, mean in entry["mean"].items():
        assert abs(float(row[key]) - mean) < 1e-6 and abs(float(row[key + "_deviation"]) - entry["deviation"][key]) < 1e-6
        assert f"${100 * mean:.1f} \\pm {100 * entry['deviation'][key]:.1f}$" in tex, tex
assert tex.startswith("\\begin{tabular}{llr") and tex.endswith("\\end{tabular}\n") and tex.count("\\\\\n") == 3
P

# curves: a log of two lines, one of them an evaluation, and one that is being written
mkdir run
printf '%s\n' '{"step":300,"epoch":1.5,"stage":1,"loss":-0.25,"lr":0.05,"images_per_s":100.0,"seconds":12.5}' \
    '{"step":300,"epoch":2,"objective":17.5,"clusters":10,"nmi":0.5,"runs":[1,2]}' >run/log.jsonl
printf '{"step":301,"lo' >>run/log.jsonl
touch -d '2025-01-02 03:04:05 UTC' run/log.jsonl
"$conr" export run --format tensorboard --out tb/run 2>says || complain "export --format tensorboard: fails"
grep -q '^tb/run: 9 values' says || { complain "export says:"; cat says; }
cat >read.py <<'P'
"""The event file, read by the published description of the format: every checksum, every value."""
import struct, sys
table = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    table.append(n)
def masked(data):
    c = 0xFFFFFFFF
    for b in data:
        c = table[(c ^ b) & 255] ^ c >> 8
    c ^= 0xFFFFFFFF
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF
assert ((masked(b"123456789") - 0xA282EAD8) << 15 | (masked(b"123456789") - 0xA282EAD8 & 0xFFFFFFFF) >> 17) & 0xFFFFFFFF == 0xE3069283
def fields(data):
    at = 0
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            b = data[at]; at += 1
            value |= (b & 127) << shift; shift += 7
            if b < 128: return value
    while at < len(data):
        key = varint()
        if key & 7 == 0: value = varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            value = data[at:at + size]; at += size
        yield key >> 3, value
bytes_, at, got = open(sys.argv[1], "rb").read(), 0, []
while at < len(bytes_):
    size, = struct.unpack_from("<Q", bytes_, at)
    assert struct.unpack_from("<I", bytes_, at + 8)[0] == masked(bytes_[at:at + 8])
    data = bytes_[at + 12:at + 12 + size]
    assert struct.unpack_from("<I", bytes_, at + 12 + size)[0] == masked(data)
    at += size + 16
    event = dict(fields(data))
    if 3 in event: assert event[3] == b"brain.Event:2" and not got; continue
    scalar = dict(fields(dict(fields(event[5]))[1]))
    got.append((scalar[1].decode(), event[2], struct.unpack("<f", scalar[2])[0], struct.unpack("<d", event[1])[0]))
want = {"train/epoch": 1.5, "train/stage": 1, "train/loss": -0.25, "train/lr": 0.05, "train/images_per_s": 100,
        "clusters/epoch": 2, "clusters/objective": 17.5, "clusters/clusters": 10, "clusters/nmi": 0.5}
assert len(got) == len(want) == 9, got
for tag, step, value, time in got:
    assert step == 300 and abs(value - want[tag]) < 1e-6 and time == 1735787045, (tag, step, value, time)
P
python3 read.py tb/run/events.out.tfevents.conr || complain "the event file is wrong"
[ "$(ls tb/run)" = events.out.tfevents.conr ] || complain "export leaves more than one file"
for python in ${PYTHON:-} python3; do
    "$python" -c 'import tensorboard' 2>/dev/null || continue
    "$python" - <<'P' 2>/dev/null || complain "tensorboard reads something else"
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator("tb/run")
events.Reload()
assert [(e.step, round(e.value, 6)) for e in events.Scalars("clusters/nmi")] == [(300, 0.5)]
assert len(events.Tags()["scalars"]) == 9
P
    echo "read by the package tensorboard, too"
    break
done
printf '%s\n' '{"step":300,"loss":1}' 'no JSON' >run/log.jsonl
refused 1 "line 2 is damaged; " export run --format tensorboard --out tb/other
[ -z "$(ls tb/other)" ] || complain "a refused export leaves files"
: >run/log.jsonl
refused 1 "holds no numbers; " export run --format tensorboard --out tb/other
refused 1 "cannot be read" export nowhere --format tensorboard --out tb/other
refused 2 "--projector" export run --format tensorboard --out tb/other --projector
refused 2 "no such format; give onnx, safetensors or tensorboard" export run --format csv --out x

# a run without edits says so
"$conr" cluster --features f.npy --clusters 2 --refine none --out made --quiet --no-report >/dev/null || complain "cluster --features: fails"
[ "$("$conr" cluster made --reset-edits 2>&1)" = "made: has no edits, nothing was changed" ] || complain "--reset-edits: says '$("$conr" cluster made --reset-edits 2>&1)'"
mkdir none
refused 1 "give the --out folder of conr cluster or train" report none

[ "$failures" = 0 ] && echo "other programs can read it"
exit "$failures"
