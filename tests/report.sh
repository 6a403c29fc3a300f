#!/bin/bash
# Reports in a real browser (tests/report.py): of a run with labels and the nastiest class and file
# names, of one without labels, of one whose images are gone, and of a sweep.
set -euo pipefail
conr=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_WAIT_POLICY=passive

# 300 small PNG files in class folders; the same in color in one folder, with three damaged files
/usr/bin/python3 - "$here/../samples/fashion-mnist" <<'P'
import gzip, os, struct, sys, zlib
def png(path, side, color, rows):
    chunk = lambda t, d: struct.pack('>I', len(d)) + t + d + struct.pack('>I', zlib.crc32(t + d))
    raw = zlib.compress(b''.join(b'\0' + r for r in rows))
    with open(path, 'wb') as f:
        f.write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', side, side, 8, color, 0, 0, 0)) +
                chunk(b'IDAT', raw) + chunk(b'IEND', b''))
images = gzip.open(sys.argv[1] + '/t10k-images-idx3-ubyte.gz').read()
labels = gzip.open(sys.argv[1] + '/t10k-labels-idx1-ubyte.gz').read()
names = ['<script>alert(1)<_script>', '"quotes" & \'more\'', '--><img src=x onerror=alert(1)>', 'Ünïcode ☂', 'Coat',
         'Sandal', 'a' * 100, '7', 'Bag', 'Ankle boot']
os.mkdir('flat')
for i in range(300):
    pixels = images[16 + 784 * i:16 + 784 * (i + 1)]
    rows = [pixels[28 * y:28 * y + 28] for y in range(28)]
    folder = 'named/' + names[labels[8 + i]]
    os.makedirs(folder, exist_ok=True)
    png(f'{folder}/"{i}" <b>,\n.png', 28, 0, rows)
    tint = [(255, 90, 60), (80, 200, 90), (70, 110, 255)][labels[8 + i] % 3]
    png(f'flat/{i}.png', 28, 2, [b''.join(bytes(v * t // 255 for t in tint) for v in r) for r in rows])
for i in range(3):
    open(f'flat/broken{i}.jpg', 'wb').write(b'\xff\xd8\xff\xe0 cut short')
P
cat >tiny.yaml <<'Y'
encoder: small
width: 4
size: 16
hidden: 32
predictor_hidden: 32
features: 16
batch: 32
lr: 0.1
predictor_lr: 1
epochs: 4
stage1_epochs: 2
warmup_epochs: 1
relax_epochs: 2
restarts: 2
eval_every: 1
log_every: 4
Y
train() { "$conr" train --recipe tiny.yaml --quiet "$@" >/dev/null 2>&1; }
train --data named --out labeled --set clusters=10
train --data flat --out plain --set clusters=3
[ -s labeled/report.html ] && [ -s plain/report.html ] || { echo "a training run wrote no report"; exit 1; }
grep -q '<script>alert' labeled/report.html && { echo "a class name reached the page unescaped"; exit 1; }
grep -q '3 images could not be read' plain/report.html || { echo "skipped images are not reported"; exit 1; }
[ "$(grep -c '^<li>flat/' plain/report.html)" = 3 ] || { echo "the report does not name the 3 skipped images"; exit 1; }
for run in labeled plain; do
    grep -q 'Beside the built-in descriptor' $run/report.html || { echo "$run/report.html shows no baseline"; exit 1; }
done
# a run that lost says so instead of "No warnings", and one without a baseline shows none
cp -r labeled lost
sed -i "/log.jsonl/d" lost/DONE # which knows the log as it was
sed -i '/"warning"/d; s/"descriptor_wins":[a-z]*/"descriptor_wins":true/; s/"descriptor_acc":[0-9.]*/"descriptor_acc":0.987/' lost/log.jsonl
"$conr" report lost --quiet >/dev/null
grep -q 'No warnings' lost/report.html || { echo "without warnings, the report does not say so"; exit 1; }
grep -q '<td>0.987</td>' lost/report.html || { echo "the descriptor's ACC is not in the report"; exit 1; }
echo '{"step":12,"epoch":4,"warning":"warning: the built-in descriptor'"'"'s clusters are better than the training'"'"'s: NMI 0.9"}' >>lost/log.jsonl
"$conr" report lost --quiet >/dev/null
grep -q 'No warnings' lost/report.html && { echo "a run that lost has no warnings"; exit 1; }
grep -q 'descriptor.*clusters are better than the training' lost/report.html || { echo "a run that lost does not say so"; exit 1; }
sed -i '/"baseline"/d' lost/log.jsonl
"$conr" report lost --quiet >/dev/null
grep -q 'Beside the built-in' lost/report.html && { echo "a run without a baseline shows one"; exit 1; }
cp -r plain gone
mv flat elsewhere
"$conr" report gone --quiet >out.txt
grep -q 'without pictures' out.txt && grep -q 'No pictures' gone/report.html || { echo "images that are gone: $(cat out.txt)"; exit 1; }
"$conr" report gone --data elsewhere --out found.html --quiet | grep -qv 'without pictures' || { echo "images that moved are not found"; exit 1; }
"$conr" sweep --recipe tiny.yaml --data named --grid fr0=0.7,0.9 --seeds 2 --set epochs=3 --out swept --quiet >/dev/null 2>&1
"$conr" report swept --quiet >/dev/null
"$conr" report labeled plain --out two.html --quiet >/dev/null
# from features, with images and without: the embeddings of the runs above stand in for somebody's
made=(--refine none --method kmeans --quiet)
"$conr" cluster named --features labeled/embeddings.npy --clusters 10 --out made "${made[@]}" >/dev/null
"$conr" cluster --features plain/embeddings.npy --clusters 3 --out rows "${made[@]}" >/dev/null
# with everything that such a run can say: a head, the graph, an estimated number; the descriptor, and
# that it was preferred to a training
"$conr" cluster named --features labeled/embeddings.npy --clusters auto:2-12 --refine conaff --method graph --out refined --quiet >/dev/null
for words in 'Refined: a head was trained' 'of the graph of contextual affinities; their number was estimated'; do
    grep -q "$words" refined/report.html || { echo "refined/report.html lacks '$words'"; exit 1; }
done
"$conr" cluster named --features hog --clusters 10 --out hog --quiet >/dev/null
grep -q 'by the built-in descriptor' hog/report.html && grep -q 'data:image/webp' hog/report.html || { echo "hog/report.html lacks the descriptor or pictures"; exit 1; }
cp -r hog noted
sed -i '1i {"step":0,"epoch":0,"note":"The clusters are <b>the</b> descriptor'"'"'s: why"}' noted/log.jsonl
sed -i "/log.jsonl/d" noted/DONE # which knows the log as it was
"$conr" report noted --quiet >/dev/null
grep -q 'The clusters are &lt;b&gt;the' noted/report.html || { echo "the note is not in the report, or not escaped"; exit 1; }
/usr/bin/python3 "$here/report.py" made/report.html rows/report.html refined/report.html hog/report.html noted/report.html labeled/report.html plain/report.html gone/report.html swept/report.html two.html
