#!/bin/bash
# Files as a user has them: images that cannot be read, lists of paths, odd names, outputs that would
# replace an input or a file of a run, places that cannot be written.
set -u
conr=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
golden=$here/../golden/images
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
failures=0
complain() { echo "$*"; failures=$((failures + 1)); }
# ok ARGS...: succeeds
ok() { "$conr" "$@" --quiet --threads 1 >"$work/out" 2>"$work/err" </dev/null || complain "conr $*: exit $?: $(cat "$work/err")"; }
# refused CODE TEXT ARGS...: exits with CODE and one line of error that contains TEXT
refused() {
    local code=$1 text=$2 got
    shift 2
    "$conr" "$@" --quiet --threads 1 >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ "$got" = "$code" ] || complain "conr $*: exit $got, not $code: $(cat "$work/err")"
    grep -v ': warning: ' "$work/err" >"$work/errors"
    [ "$(wc -l <"$work/errors")" = 1 ] && grep -qE '^conr: .+; .+' "$work/errors" && grep -qF -- "$text" "$work/errors" ||
        complain "conr $*: not one line with '$text': $(cat "$work/err")"
}
# in_out TEXT, in_err TEXT: the last command printed TEXT
in_out() { grep -qF -- "$1" "$work/out" || complain "stdout lacks '$1': $(head -c 500 "$work/out")"; }
in_err() { grep -qF -- "$1" "$work/err" || complain "stderr lacks '$1': $(cat "$work/err")"; }

# 104 images, four of them JPEG files that are cut short after their headers
mkdir "$work/photos"
kinds=(rgb.jpg gray.jpg rgb.png lossy.webp progressive.jpg)
for ((i = 0; i < 104; i++)); do
    kind=${kinds[i % 5]}
    cp "$golden/$kind" "$work/photos/$(printf 'i%03d' $i).${kind#*.}"
done
bad=(i000.jpg i025.jpg i050.jpg i100.jpg)
for name in "${bad[@]}"; do
    size=$(stat -c %s "$work/photos/$name")
    truncate -s $((size * 3 / 4)) "$work/photos/$name"
done

# ---- unreadable images: every verb counts and names them, and rows stay with their paths
ok kmeans "$work/photos" --clusters 5 --restarts 2 --out "$work/l.npy"
in_err "4 of 104 images were skipped; the first: $work/photos/i000.jpg"
ok kmeans "$work/photos" --clusters 5 --restarts 2 --out "$work/l.npy" --json
in_out '"n": 100'
in_out '"skipped": 4'
in_out "\"first_skipped\": \"$work/photos/i000.jpg"
ok info "$work/photos" --paths
in_err "4 of 104 images were skipped"
cp "$work/out" "$work/paths"
[ "$(wc -l <"$work/paths")" = 100 ] || complain "info --paths: $(wc -l <"$work/paths") paths, not 100"
for name in "${bad[@]}"; do grep -q "$name" "$work/paths" && complain "info --paths lists $name, which has no row"; done
sort -c "$work/paths" || complain "info --paths: another order than the folder's"
# images of one kind are equal, so a cluster that holds two kinds betrays a shift of the rows
tail -c 400 "$work/l.npy" | od -An -v -w4 -td4 | tr -d ' ' | paste - "$work/paths" |
    while read -r label path; do
        path=${path##*/i}
        i=$((10#${path%%.*}))
        echo "$label ${kinds[i % 5]}"
    done | sort -u >"$work/pairs"
[ "$(wc -l <"$work/pairs")" = 5 ] || complain "kmeans: labels are not aligned with info --paths: $(cat "$work/pairs")"
ok info "$work/photos" --paths --json
in_out '"skipped": 4'
for name in "${bad[@]}"; do grep -q "\"$work/photos/$name: " "$work/out" || complain "info --paths --json does not name $name"; done
[ "$(grep -c 'photos/i' "$work/out")" = 105 ] || complain "info --paths --json: $(head -c 300 "$work/out")"
ok info "$work/photos" --paths0
tr '\0' '\n' <"$work/out" | cmp -s - "$work/paths" || complain "info --paths0 differs from --paths"
ok info "$golden/idx" --paths
in_out "#0"
refused 2 "leave one out" info "$work/photos" --paths --paths0
# a glance at the headers names each file that is not read: five in text, all in --json
mkdir "$work/raw"
cp "$golden/rgb.jpg" "$work/raw"
for ((i = 0; i < 7; i++)); do echo raw >"$work/raw/$i.cr2"; done
ok info "$work/raw"
in_out "images   1, and 7 that cannot be read"
in_out "skipped  $work/raw/0.cr2: is of a format"
in_out "           and 2 more; --json lists them"
[ "$(grep -c '/raw/[0-4].cr2: ' "$work/out")" = 5 ] || complain "info names $(grep -c cr2: "$work/out") skipped files, not 5"
ok info "$work/raw" --json
[ "$(grep -c '^    ".*/raw/[0-6].cr2: ' "$work/out")" = 7 ] || complain "info --json: $(cat "$work/out")"
# a name with a line break would look like two
mkdir "$work/odd"
cp "$golden/rgb.png" "$work/odd/a"$'\n'"b.png"
cp "$golden/rgb.png" "$work/odd/c.png"
refused 1 "--paths0" info "$work/odd" --paths
ok info "$work/odd" --paths0
printf '%s\0' "$work/odd/a"$'\n'"b.png" "$work/odd/c.png" | cmp -s - "$work/out" || complain "info --paths0: $(tr '\0' '|' <"$work/out")"
ok info "$work/odd" --paths --json
in_out 'a\nb.png'

# ---- a run over them
cat >"$work/tiny.yaml" <<'Y'
encoder: small
width: 4
size: 16
hidden: 16
predictor_hidden: 16
features: 8
batch: 32
epochs: 1
stage1_epochs: 1
warmup_epochs: 0
restarts: 1
clusters: 5
Y
run=$work/run
ok train --recipe "$work/tiny.yaml" --data "$work/photos" --out "$run" --json
in_out '"skipped": 4'
cut -d, -f1 "$run/labels.csv" | tail -n +2 | cmp -s - "$work/paths" || complain "labels.csv has other paths than info --paths"
ok embed "$run" "$work/photos" --out "$work/f.npy" --json
in_out '"skipped": 4'
ok assign "$run" "$work/photos" --out "$work/a.csv" --json
in_out '"skipped": 4'
refused 2 "source of images" info "$run" --paths

# ---- an output never replaces an input or a file of a run
before=$(cd "$work" && find run photos f.npy -type f -printf '%p %s %T@\n' | sort)
for file in model.safetensors options.yaml log.jsonl labels.csv embeddings.npy centroids.npy data.json DONE checkpoint.safetensors report.html; do
    refused 1 "of a run" export "$run" --out "$run/$file" --format onnx
done
(cd "$run" && refused 1 "of a run" export . --out model.safetensors; exit $failures) || failures=$?
ln -s "$run/model.safetensors" "$work/link"
ln -s "$run" "$work/linked"
refused 1 "of a run" export "$run" --out "$work/link" --format safetensors
refused 1 "of a run" export "$run" --out "$work/linked/model.safetensors"
refused 1 "of a run" report "$run" --out "$run/model.safetensors"
refused 1 "of a run" report "$run" "$run" --out "$run/report.html"
refused 1 "of a run" embed "$run" "$work/photos" --out "$run/embeddings.npy"
refused 1 "of a run" assign "$run" "$work/photos" --out "$run/labels.csv"
refused 1 "of a run" kmeans "$work/f.npy" --clusters 2 --out "$run/centroids.npy"
refused 1 "of a run" kmeans "$work/f.npy" --clusters 2 --out "$work/l.npy" --centroids "$run/centroids.npy"
refused 1 "of a run" neighbors "$run/embeddings.npy" --out "$run/embeddings.npy"
refused 1 "the input" kmeans "$work/f.npy" --clusters 2 --out "$work/f.npy"
refused 1 "the input" kmeans "$work/f.npy" --clusters 2 --out "$work/l.npy" --centroids "$work/./f.npy"
refused 1 "the input" neighbors "$work/f.npy" --out "$work/photos/../f.npy"
refused 1 "same file" kmeans "$work/f.npy" --clusters 2 --out "$work/both.npy" --centroids "$work/both.npy"
refused 1 "of the images" assign "$run" "$work/photos" --out "$work/photos/i001.jpg"
refused 1 "of the images" assign "$run" "$work/photos" --out "$work/photos/i000.jpg" # one that cannot be read
refused 1 "of the images" embed "$run" "$work/photos" --out "$work/photos/i003.webp"
refused 1 "of the images" kmeans "$work/photos" --clusters 2 --out "$work/photos/i003.webp"
refused 1 "of the images" report "$run" --out "$work/photos/i001.jpg"
cp "$run/model.safetensors" "$work/m.safetensors"
refused 1 "the input" export "$work/m.safetensors" --out "$work/m.safetensors"
cp -r "$golden/idx" "$work/idx"
for file in "$work"/idx/*; do refused 1 "of the images" kmeans "$work/idx" --clusters 2 --out "$file"; done
sed "s,^,$work/," <<<"photos/i002.png" >"$work/list.txt"
refused 1 "of the images" kmeans "$work/list.txt" --clusters 1 --out "$work/list.txt"
[ "$before" = "$(cd "$work" && find run photos f.npy -type f -printf '%p %s %T@\n' | sort)" ] || complain "a refused output was written all the same"
# what is nobody's may be replaced
ok export "$run" --out "$run/encoder.onnx"
ok export "$run" --out "$run/encoder.onnx"
ok report "$run" --out "$run/report.html"
ok report "$work/linked" --out "$run/report.html"
ok kmeans "$run/embeddings.npy" --clusters 2 --out "$run/l.npy"
ok assign "$run" "$work/photos" --out "$work/photos/a.csv"
ok assign "$run" "$work/photos" --out "$work/photos/a.csv"

# ---- a place for sorted images that cannot be written is found before the training
touch "$work/file"
for place in /proc/sorted /proc/no/such/sorted "$work/file/sorted"; do
    refused 1 "$place" cluster "$work/photos" --clusters 2 --out "$work/never" --set epochs=1 --sort-into "$place"
    refused 1 "$place" assign "$run" "$work/photos" --out "$work/never.csv" --sort-into "$place"
    [ -e "$work/never" ] && complain "--sort-into $place: refused after the training"
    [ -e "$work/never.csv" ] && complain "--sort-into $place: refused after the assignment"
done
mkdir -p "$work/sorted/empty"
# links lead to the images, also from a source that is named relative to another folder
(
    cd "$work"
    for place in "$work/sorted/a" sorted/b b-here ./c/d/e/; do
        ok assign run photos --out again.csv --sort-into "$place"
        [ "$(find -L "$place" -type f | wc -l)" = 100 ] || complain "--sort-into $place from a relative source: $(find -L "$place" -type f | wc -l) images, not 100"
        [ -z "$(find -L "$place" -type l)" ] || complain "--sort-into $place: links that lead nowhere"
    done
    ok assign run photos --out again.csv --sort-into sorted/empty
    ok assign ../"${work##*/}"/run ./photos/../photos --out again.csv --sort-into "$work/sorted/f"
    find -L "$work/sorted/f" -name i001.jpg -o -name i004.jpg | while read -r link; do
        [ "$(readlink "$link")" = "$(realpath "$work/photos/${link##*/}")" ] || complain "$link leads to $(readlink "$link")"
    done
    # a finished run, as edited: one object, as of every verb
    ok cluster run --sort-into sorted/g --json
    in_out '"n": 100'
    ok cluster run --reset-edits --json
    in_out '"run": "run"'
    exit $failures
) || failures=$?
[ -z "$(find "$work" -name '.conr-*')" ] || complain "--sort-into left $(find "$work" -name '.conr-*')"

# ---- an output that is a pipe or a device is refused, and a link is followed
mkfifo "$work/pipe"
refused 1 "a pipe or a device" duplicates "$work/photos" --out "$work/pipe"
[ -p "$work/pipe" ] || complain "duplicates replaced a pipe"
echo old >"$work/target.csv"
ln -s target.csv "$work/link.csv"
ok duplicates "$work/photos" --out "$work/link.csv"
[ -L "$work/link.csv" ] && head -1 "$work/target.csv" | grep -q ^group, || complain "duplicates replaced a link, not its file"

# ---- a recipe with a byte order mark, as some editors write it
{ printf '\xef\xbb\xbf'; cat "$work/tiny.yaml"; } >"$work/marked.yaml"
ok train --recipe "$work/marked.yaml" --check
in_out "hidden: 16"

# ---- exit codes: files of unequal length; a sweep with a failed run
head -50 "$work/a.csv" >"$work/short.csv"
refused 1 "100" eval --truth "$work/a.csv" --pred "$work/short.csv"
[ -s "$work/out" ] && complain "eval of unequal files printed $(cat "$work/out")"
# a batch cannot be larger than the set of images
"$conr" sweep --recipe "$work/tiny.yaml" --data "$work/photos" --grid batch=32,512 --out "$work/sweep" --quiet --threads 1 >"$work/out" 2>"$work/err"
got=$?
[ $got = 1 ] || complain "a sweep with a failed run: exit $got: $(cat "$work/err")"
in_err "1 of 2 runs failed; sweep.json says why"
[ "$(grep -c '"error": null' "$work/sweep/sweep.json")" = 1 ] || complain "sweep.json: $(grep '"error"' "$work/sweep/sweep.json")"

[ "$failures" = 0 ] && echo "files behave"
exit "$failures"
