#!/bin/bash
# Features in place of a training: clusters of somebody's features, with and without images; runs
# clustered again; new features assigned; and everything that must be refused in one line.
set -u
conr=$(realpath "$1")
command -v python3 >/dev/null || exit 77
. "$(dirname "$0")/expect.sh"

# Three classes of 20 images; features that separate them, in the order of the images, as every
# kind of file; the same rows shuffled with their paths; new rows; broken ones.
python3 - <<'P'
import os, random, struct, zlib
rng = random.Random(5)
def png(path, level):
    chunk = lambda t, d: struct.pack('>I', len(d)) + t + d + struct.pack('>I', zlib.crc32(t + d))
    rows = b''.join(b'\0' + bytes(min(255, level + rng.randrange(40)) for _ in range(16)) for _ in range(16))
    open(path, 'wb').write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 16, 16, 8, 0, 0, 0, 0)) +
                           chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))
def npy(path, descr, code, rows, fortran=False):
    n, d = len(rows), len(rows[0]) if rows else 0
    flat = [rows[i][j] for j in range(d) for i in range(n)] if fortran else [x for r in rows for x in r]
    head = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': ({n}, {d}), }}"
    head += ' ' * (-(len(head) + 11) % 64) + '\n'
    open(path, 'wb').write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head.encode() +
                           struct.pack(f'{descr[0]}{len(flat)}{code}', *flat))
center = [[rng.gauss(0, 4) for _ in range(6)] for _ in range(3)]
# values that float16 has exactly, so that every type gives the same bits
draw = lambda c: [round((x + rng.gauss(0, .6)) * 16) / 16 for x in center[c]]
names, rows = [], []
for c, name in enumerate(['ant', 'bee', 'cat']):
    os.makedirs(f'photos/{name}')
    for i in range(20):
        png(f'photos/{name}/{i:02}.png', 60 * c)
        names.append(f'{name}/{i:02}.png')
        rows.append(draw(c))
npy('f.npy', '<f4', 'f', rows)
npy('half.npy', '<f2', 'e', rows)
npy('double.npy', '<f8', 'd', rows)
npy('big.npy', '>f4', 'f', rows)
npy('fortran.npy', '<f4', 'f', rows, True)
order = list(range(60))
rng.shuffle(order)
npy('mixed.npy', '<f4', 'f', [rows[i] for i in order])
def lines(path, prefix, extra=[]): open(path, 'w').write(''.join(prefix + names[i] + '\n' for i in order) + ''.join(extra))
lines('relative.txt', '')
lines('dotted.txt', './photos/')
lines('absolute.txt', os.getcwd() + '/photos/')
lines('elsewhere.txt', '/mnt/disk/old/')
short = [names[i] for i in order]
open('twice.txt', 'w').write('\n'.join(short[:-1] + [short[0]]) + '\n')
open('stranger.txt', 'w').write('\n'.join(short[:-1] + ['dog/99.png']) + '\n')
open('unclear.txt', 'w').write('\n'.join(short[:-1] + ['05.png']) + '\n')
open('few.txt', 'w').write('\n'.join(short[:-1]) + '\n')
npy('few.npy', '<f4', 'f', [rows[i] for i in order[:-1]])
open('empty.txt', 'w').close()
npy('new.npy', '<f4', 'f', [draw(i % 3) for i in range(9)])
npy('wide.npy', '<f4', 'f', [[1.0] * 7] * 3)
npy('nan.npy', '<f4', 'f', [[float('nan')] * 6] * 5)
npy('none.npy', '<f4', 'f', [])
open('cut.npy', 'wb').write(open('f.npy', 'rb').read()[:300])
P
plain=(--refine none --method kmeans --no-report)

# ---- with images: a whole run, scored by their labels, the same for every kind of file
says "NMI 1.0000  ACC 1.0000" cluster photos --features f.npy --clusters 3 --refine none --method kmeans --out run
has run options.yaml log.jsonl embeddings.npy centroids.npy labels.csv data.json report.html DONE
[ -e run/model.safetensors ] && complain "a run from features has a model"
[ "$(head -n 1 run/labels.csv)" = path,cluster,distance,boundary,label ] || complain "labels.csv: $(head -n 1 run/labels.csv)"
[ "$(wc -l <run/labels.csv)" = 61 ] || complain "labels.csv has $(wc -l <run/labels.csv) lines"
for kind in half double big fortran; do
    ok cluster photos --features $kind.npy --clusters 3 "${plain[@]}" --out run-$kind
    for file in embeddings.npy centroids.npy labels.csv; do cmp -s run/$file run-$kind/$file || complain "$kind.npy gives another $file"; done
done
"$conr" cluster photos --features f.npy --clusters 3 "${plain[@]}" --out one --quiet --threads 1 >/dev/null
cmp -s run/labels.csv one/labels.csv && cmp -s run/embeddings.npy one/embeddings.npy || complain "one thread gives another result"

# ---- --paths: rows in another order, named in four ways, are the same rows
for kind in relative dotted absolute elsewhere; do
    ok cluster photos --features mixed.npy --paths $kind.txt --clusters 3 "${plain[@]}" --out by-$kind
    for file in embeddings.npy labels.csv; do cmp -s run/$file by-$kind/$file || complain "--paths $kind.txt gives another $file"; done
done
tr '\n' '\0' <relative.txt >zeros.txt
sed 's/$/\r/' relative.txt >dos.txt
for kind in zeros dos; do
    ok cluster photos --features mixed.npy --paths $kind.txt --clusters 3 "${plain[@]}" --out by-$kind
    cmp -s run/labels.csv by-$kind/labels.csv || complain "--paths $kind.txt gives another labels.csv"
done
refused 1 "are the same image" cluster photos --features mixed.npy --paths twice.txt --clusters 3 "${plain[@]}" --out no
refused 1 "dog/99.png (path 60) is none of the images" cluster photos --features mixed.npy --paths stranger.txt --clusters 3 "${plain[@]}" --out no
refused 1 "05.png (path 60) fits several images" cluster photos --features mixed.npy --paths unclear.txt --clusters 3 "${plain[@]}" --out no
refused 1 "59 paths for the 60 rows" cluster photos --features mixed.npy --paths few.txt --clusters 3 "${plain[@]}" --out no
refused 1 "has no path for 1 of the images" cluster photos --features few.npy --paths few.txt --clusters 3 "${plain[@]}" --out no
refused 1 "has no paths" cluster photos --features mixed.npy --paths empty.txt --clusters 3 "${plain[@]}" --out no
refused 1 "gone.txt" cluster photos --features mixed.npy --paths gone.txt --clusters 3 "${plain[@]}" --out no
refused 1 "not a file" cluster photos --features mixed.npy --paths photos --clusters 3 "${plain[@]}" --out no
refused 1 "59 rows for 60 images" cluster photos --features few.npy --clusters 3 "${plain[@]}" --out no
# an image that only decoding shows to be damaged is in no list of ours
cp -r photos damaged
head -c 80 photos/ant/03.png >damaged/ant/03.png
"$conr" info damaged --paths --quiet >listed.txt 2>/dev/null
[ "$(wc -l <listed.txt)" = 59 ] || complain "info lists $(wc -l <listed.txt) of 59 images"
ok cluster damaged --features few.npy --clusters 3 "${plain[@]}" --out skipped
grep -q "1 of 60 images were skipped" err || complain "no warning about the damaged image: $(cat err)"

# ---- without images
says "3 clusters, neighbor agreement 0.9500" cluster --features f.npy --clusters auto:2-8 --refine none --method kmeans --out bare
[ "$(sed -n 2p bare/labels.csv | cut -d, -f1)" = "f.npy#0" ] || complain "a row is called $(sed -n 2p bare/labels.csv)"
[ "$(head -n 1 bare/labels.csv)" = path,cluster,distance,boundary ] || complain "labels.csv: $(head -n 1 bare/labels.csv)"
has bare report.html DONE
[ -e bare/data.json ] && complain "data.json without images"
ok cluster --features mixed.npy --paths relative.txt --clusters 3 "${plain[@]}" --out named
[ "$(sed -n 2p named/labels.csv | cut -d, -f1)" = "$(head -n 1 relative.txt)" ] || complain "rows are not called by --paths"

# ---- refused: what is broken, and flags that do not fit
refused 1 "nan.npy" cluster --features nan.npy --clusters 2 "${plain[@]}" --out no
refused 1 "none.npy" cluster --features none.npy --clusters 2 "${plain[@]}" --out no
refused 1 "cut.npy" cluster --features cut.npy --clusters 2 "${plain[@]}" --out no
refused 1 "gone.npy" cluster --features gone.npy --clusters 2 "${plain[@]}" --out no
refused 1 "more than the 60 rows" cluster --features f.npy --clusters 61 "${plain[@]}" --out no
refused 1 "holds a finished run" cluster --features f.npy --clusters 3 "${plain[@]}" --out run
refused 2 "--clusters" cluster --features f.npy --clusters 0 "${plain[@]}" --out no
refused 2 "--clusters" cluster --features f.npy --out no
refused 2 "--out" cluster --features f.npy --clusters 3
refused 2 "is for a training" cluster photos --features f.npy --recipe x.yaml --clusters 3 --out no
refused 2 "is for a training" cluster photos --features f.npy --budget 1m --clusters 3 --out no
refused 2 "epochs=3: no setting of clusters of features" cluster photos --features f.npy --set epochs=3 --clusters 3 --out no
refused 2 "no such word" cluster photos --features f.npy --method spectral --clusters 3 --out no
refused 2 "no such word" cluster photos --features f.npy --refine much --clusters 3 --out no
refused 2 "is for features" cluster photos --method graph --clusters 3 --out no
refused 2 "is for features" cluster photos --paths relative.txt --clusters 3 --out no
refused 2 "SRC: is missing" cluster --clusters 3 --out no
refused 2 "needs the images" cluster --features f.npy --clusters 3 --sort-into sorted --out no
refused 2 "give SRC" cluster --features hog --clusters 3 --out no
refused 2 "leave it out with --features hog" cluster photos --features hog --paths relative.txt --clusters 3 --out no
mkdir here && cp f.npy here/embeddings.npy
refused 1 "is one of the inputs" cluster --features here/embeddings.npy --clusters 3 "${plain[@]}" --out here
cmp -s f.npy here/embeddings.npy || complain "the input was written over"
[ -e no/options.yaml ] && complain "a refused run left an options.yaml"
ok cluster --features f.npy --clusters 3 "${plain[@]}" --out no # what a refused call left does not matter
# so does a run that was killed before it was done
rm no/DONE
refused 1 "is not finished" assign no new.npy --out a.csv
ok cluster --features f.npy --clusters 2 "${plain[@]}" --out no
grep -q '^clusters: 2' no/options.yaml || complain "an unfinished run was not started over"

# ---- new features
ok assign run f.npy --out all.csv
cut -d, -f2-4 all.csv | cmp -s - <(cut -d, -f2-4 run/labels.csv) || complain "assign gives the rows of the run other clusters"
ok assign bare new.npy --out new.csv
[ "$(sed -n 2p new.csv | cut -d, -f1)" = "new.npy#0" ] && [ "$(wc -l <new.csv)" = 10 ] || complain "new.csv: $(head -n 3 new.csv)"
[ "$(tail -n +2 new.csv | cut -d, -f2 | paste -sd '' | grep -cE '^(.)(.)(.)(\1\2\3){2}$')" = 1 ] || complain "new rows are in the wrong clusters: $(cut -d, -f2 new.csv | paste -sd ' ')"
seq -f 'new/%g.png' 9 >new.txt
ok assign bare new.npy --paths new.txt --out new.csv
[ "$(sed -n 2p new.csv | cut -d, -f1)" = "new/1.png" ] || complain "--paths: $(sed -n 2p new.csv)"
refused 1 "60 paths for the 9 rows" assign bare new.npy --paths relative.txt --out new.csv
refused 1 "give the features of these images" assign run photos --out no.csv
refused 1 "give the features of these images" embed run photos --out no.npy
refused 1 "7 per row, but the run takes 6" assign run wide.npy --out no.csv
refused 1 "nan.npy" assign run nan.npy --out no.csv
refused 1 "is the input as well" assign run new.npy --out new.npy
refused 1 "is a file of a run" assign run new.npy --out run/labels.csv
refused 2 "needs images" assign run new.npy --out no.csv --sort-into sorted
ok embed run f.npy --out again.npy
cmp -s again.npy run/embeddings.npy || complain "embed gives the rows of the run other embeddings"

# ---- by a head, by the graph, by the descriptor: the rows of the run get the embeddings and clusters
# of the run, new rows the clusters of their class
# by default refined only if that helps, and here k-means finds everything
timeout -s KILL 60 "$conr" cluster photos --features f.npy --clusters 3 --method kmeans --threads 2 --out chosen >out 2>err </dev/null || complain "chosen: $(cat err)"
grep -qE 'not refined: neighbors confirm the clusters of refined features to 0\.[0-9]+, of the features as given to 0\.[0-9]+' err || complain "it is not said why nothing was refined: $(cat err)"
grep -q '^refine: none$' chosen/options.yaml && grep -q '"event":"refine","taken":"none"' chosen/log.jsonl && grep -q 'Not refined: neighbors confirm' chosen/report.html ||
    complain "the choice is not recorded: $(grep refine chosen/options.yaml)"
ok cluster photos --features f.npy --clusters 3 --refine conaff --method kmeans --no-report --out head
grep -q '^refine: conaff$' head/options.yaml && has head head.safetensors || complain "features were not refined: $(grep refine head/options.yaml)"
ok cluster photos --features f.npy --clusters 3 --refine none --method graph --no-report --out graph
says "NMI 1.0000  ACC 1.0000" cluster photos --features hog --clusters 3 --out hog
grep -q '^refine: none$' hog/options.yaml || complain "the descriptor was refined by default"
[ -e hog/head.safetensors ] && complain "the descriptor has a head"
grep -q 'data:image/webp' hog/report.html || complain "the report of the descriptor's clusters has no pictures"
mkdir fresh && cp photos/cat/0[0-4].png fresh
for kind in head graph hog; do
    [ $kind = hog ] && all=photos some=fresh classes=cat || all=f.npy some=new.npy classes=three
    ok embed $kind $all --out again.npy
    cmp -s again.npy $kind/embeddings.npy || complain "$kind: embed gives the rows of the run other embeddings"
    ok assign $kind $all --out all.csv
    cut -d, -f2-4 all.csv | cmp -s - <(cut -d, -f2-4 $kind/labels.csv) || complain "$kind: assign gives the rows of the run other clusters"
    ok assign $kind $some --out some.csv
    of() { awk -F, -v name="$1" '$1 ~ name { print $2; exit }' $kind/labels.csv; }
    [ $classes = cat ] && want=$(yes "$(of cat/)" | head -n 5) || want=$(for i in 1 2 3; do of ant/; of bee/; of cat/; done)
    [ "$(tail -n +2 some.csv | cut -d, -f2)" = "$want" ] || complain "$kind: new rows are in the clusters $(cut -d, -f2 some.csv | paste -sd ' ')"
done
refused 1 "images are uint8" assign hog f.npy --out no.csv
refused 1 "images are uint8" embed hog f.npy --out no.npy

# ---- other verbs
ok cluster photos --features f.npy --clusters 3 "${plain[@]}" --sort-into sorted --out sorting
[ "$(find sorted -name '*.png' | wc -l)" = 60 ] || complain "--sort-into: $(find sorted | wc -l) files"
rm run/report.html
ok report run
has run report.html
for word in "a run made from features" "takes    features, 6 features each" "by k-means"; do says "$word" info run; done
says '"takes": "features"' info run --json
says '"neighbor_agreement": 0.95' cluster photos --features f.npy --clusters 3 "${plain[@]}" --out shown --json
python3 -c 'import json; o = json.load(open("out")); assert o["nmi"] == 1 and o["sizes"] == [20] * 3 and o["n"] == 60 and o["method"] == "kmeans", o' || complain "--json: $(cat out)"
cp -r run half && rm half/DONE
refused 1 "made from features" train --resume --data photos --out half
refused 1 "made from features" train --recipe run/options.yaml --data photos --out no2

# ---- clustered again
ok cluster run --clusters 6 --method kmeans --out six
has six options.yaml embeddings.npy centroids.npy labels.csv data.json report.html DONE
cmp -s run/embeddings.npy six/embeddings.npy || complain "clustering again changed the embeddings"
[ "$(cut -d, -f1,5 six/labels.csv)" = "$(cut -d, -f1,5 run/labels.csv)" ] || complain "clustering again lost paths or labels"
[ "$(tail -n +2 six/labels.csv | cut -d, -f2 | sort -u | wc -l)" = 6 ] || complain "not six clusters"
grep -q 'data:image/webp' six/report.html || complain "the report of a run clustered again has no pictures"
ok assign six new.npy --out six.csv
ok cluster six --clusters 3 --method kmeans --no-report --out three
cmp -s <(cut -d, -f2 three/labels.csv | sort | uniq -c | sort) <(cut -d, -f2 run/labels.csv | sort | uniq -c | sort) || complain "three clusters of six differ from three"
refused 2 "nothing is trained" cluster run --clusters 4 --refine conaff --out no3
refused 2 "is a run" cluster run --features f.npy --clusters 4 --out no3
refused 1 "holds a finished run" cluster run --clusters 4 --out run
refused 2 "conr assign RUN SRC --sort-into" cluster run --clusters 4 --sort-into s --out no3
# of a training, whose model goes along
cat >tiny.yaml <<'Y'
encoder: small
width: 4
size: 16
hidden: 16
predictor_hidden: 16
features: 8
batch: 20
epochs: 2
stage1_epochs: 1
warmup_epochs: 1
restarts: 2
Y
ok train --recipe tiny.yaml --data photos --set clusters=3 --set keep_every=1 --set compact=true --no-report --out trained
ok cluster trained --clusters 4 --method kmeans --no-report --out trained4
cmp -s trained/model.safetensors trained4/model.safetensors || complain "the model did not go along"
ok assign trained4 photos --out t.csv
cut -d, -f2 t.csv | cmp -s - <(cut -d, -f2 trained4/labels.csv) || complain "assign by the model gives other clusters"
ok embed trained4 photos --out t.npy
says "takes    images, through the model" info trained4

# ---- a budget: stripes in three directions tell the descriptor everything, and a network that does
# not learn nothing: the result is the descriptor's, by signs that need no labels, and says so
python3 - <<'P'
import math, os, random, struct, zlib
rng = random.Random(5)
for c in range(3):
    os.makedirs(f'stripes/{"abc"[c]}')
    for i in range(40):
        a, phase = c * math.pi / 3, 7 * rng.random()
        pixel = lambda x, y: int(110 + rng.randrange(-25, 26) + 30 * math.sin(phase + 1.2 * (x * math.cos(a) + y * math.sin(a))))
        rows = b''.join(b'\0' + bytes(pixel(x, y) for x in range(24)) for y in range(24))
        chunk = lambda t, d: struct.pack('>I', len(d)) + t + d + struct.pack('>I', zlib.crc32(t + d))
        open(f'stripes/{"abc"[c]}/{i:02}.png', 'wb').write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 24, 24, 8, 0, 0, 0, 0)) +
                                                        chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))
P
says "The clusters are the built-in descriptor's" cluster stripes --clusters 3 --budget 1s --set lr=0 --sort-into by-stripe --out short
grep -q "ACC 1.0000" out || complain "the descriptor's clusters: $(cat out)"
has short DONE report.html labels.csv training/DONE training/model.safetensors training/report.html training/checkpoint.safetensors
[ -e short/model.safetensors ] && complain "the model of the training was left beside the descriptor's clusters"
grep -q '"note":"The clusters are the built-in' short/log.jsonl && grep -q 'The clusters are the built-in descriptor' short/report.html || complain "log or report do not say whose clusters these are"
[ "$(find by-stripe -name '*.png' | wc -l)" = 120 ] || complain "--sort-into: $(find by-stripe -name '*.png' | wc -l) files"
ok assign short stripes --out s.csv
cut -d, -f2 s.csv | cmp -s - <(cut -d, -f2 short/labels.csv) || complain "assign does not take the descriptor"
ok assign short/training stripes --out t.csv
cut -d, -f2 t.csv | cmp -s - <(cut -d, -f2 short/training/labels.csv) || complain "the training that was set aside assigns other clusters"
ok cluster stripes --clusters 3 --budget 1s --set lr=0 --set baseline=false --no-report --out alone
has alone DONE model.safetensors
mkdir taken && touch taken/training
refused 1 "may have to move there" cluster stripes --clusters 3 --budget 1s --set lr=0 --no-report --out taken

# ---- sweeps
says "| k1           | runs | NMI" sweep --data photos --features f.npy --clusters 3 --refine none --method kmeans --grid k1=3,5 --seeds 2 --out swept
grep -q '^k1: 3$' swept/k1=3,seed=1/options.yaml && grep -q '^k2: -1$' swept/k1=3,seed=1/options.yaml || complain "k1 of a sweep: $(grep '^k' swept/k1=3,seed=1/options.yaml)"
has swept sweep.json table.md k1=3,seed=1/DONE k1=5,seed=2/DONE
ok report swept
grep -q 'k1' swept/report.html || complain "the comparison lacks k1"
says "agreement" sweep --features f.npy --refine none --method kmeans --grid clusters=2,3 --out swept2
ok sweep --features f.npy --refine none --method kmeans --grid clusters=2,3,4 --out swept2 # extended
refused 1 "give another --out" sweep --features new.npy --refine none --method kmeans --grid clusters=2,3 --out swept2
says "| graph        | none" sweep --data photos --features f.npy --clusters 3 --grid method=kmeans,graph --grid refine=none --out swept4
for m in kmeans graph; do grep -q "^method: $m\$" "swept4/method=$m,refine=none,seed=1/options.yaml" || complain "the method of a sweep: $(grep '^method' "swept4/method=$m,refine=none,seed=1/options.yaml")"; done
refused 2 "no such word" sweep --features f.npy --grid method=kmeans,cut --out swept5
refused 2 "also given by --method" sweep --features f.npy --method graph --grid method=kmeans --out swept5
refused 1 "method: no such setting" sweep --recipe tiny.yaml --data photos --grid method=kmeans --out swept5
refused 1 "its runs have method" sweep --features f.npy --refine none --method graph --grid clusters=2,3,4 --out swept2
refused 2 "no setting of clusters of features" sweep --features f.npy --grid lr=1,2 --out swept3
refused 2 "is for a training" sweep --features f.npy --recipe tiny.yaml --grid k=1,2 --out swept3
refused 2 "are for trainings" sweep --features f.npy --from run --grid k=1,2 --out swept3
refused 2 "give --data SRC" sweep --features hog --grid k=1,2 --out swept3

# ---- checkpoints that a training kept
ok embed trained photos --out end.npy
ok embed trained@2 photos --out end2.npy
cmp -s end.npy end2.npy || complain "the checkpoint of the last epoch is not the model"
ok embed trained@1 photos --out middle.npy
cmp -s end.npy middle.npy && complain "the first epoch gives the features of the last"
mv trained/checkpoint-0001.safetensors kept # the compact one is left, in half precision
ok embed trained@1 photos --out compact.npy
[ "$(cmp -l middle.npy compact.npy | wc -l)" -gt 0 ] || complain "the compact checkpoint was not used"
refused 1 "no checkpoint of that epoch was kept" embed trained@7 photos --out no.npy
refused 1 "no centroids next to the model" assign trained@1 photos --out no.csv
head -c 3000 kept >trained/checkpoint-0001.safetensors
refused 1 "checkpoint-0001.safetensors" embed trained@1 photos --out no.npy

# ---- damaged files of a run
for file in embeddings.npy labels.csv options.yaml; do
    rm -rf harmed && cp -r run harmed
    head -c 100 run/$file >harmed/$file
    refused 1 "harmed" cluster harmed --clusters 2 --method kmeans --out no4
done
rm -rf harmed && cp -r run harmed
printf '\x55' | dd of=harmed/centroids.npy bs=1 seek=140 conv=notrunc 2>/dev/null
refused 1 "centroids.npy" assign harmed new.npy --out no.csv
rm -rf harmed && cp -r run harmed && rm harmed/centroids.npy
refused 1 "centroids.npy" assign harmed new.npy --out no.csv
sed -i 's/^method: .*/method: magic/' harmed/options.yaml
refused 1 "method=magic" info harmed

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
