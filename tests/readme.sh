#!/bin/bash
# The commands of the README for one's own images and features, run as they are written there, one
# after another, on a small folder of pictures; only 30 minutes of training become two seconds.
set -u
conr=$(realpath "$1")
readme=$(realpath "$(dirname "$0")/../README.md")
command -v python3 >/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
mkdir build && ln -s "$conr" build/conr

# Stripes in three directions, and features that tell them apart.
python3 - <<'P'
import math, os, random, struct, zlib
rng = random.Random(3)
def png(path, c):
    a, phase, chunk = c * math.pi / 3, 7 * rng.random(), lambda t, d: struct.pack('>I', len(d)) + t + d + struct.pack('>I', zlib.crc32(t + d))
    level = lambda x, y: int(110 + rng.randrange(-25, 26) + 30 * math.sin(phase + 1.2 * (x * math.cos(a) + y * math.sin(a))))
    rows = b''.join(b'\0' + bytes(level(x, y) for x in range(24)) for y in range(24))
    open(path, 'wb').write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 24, 24, 8, 0, 0, 0, 0)) +
                           chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))
def npy(path, descr, code, shape, values):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    head += ' ' * (-(len(head) + 11) % 64) + '\n'
    open(path, 'wb').write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head.encode() + struct.pack(f'<{len(values)}{code}', *values))
center = [[rng.gauss(0, 4) for _ in range(8)] for _ in range(3)]
def features(path, classes): npy(path, '<f4', 'f', (len(classes), 8), [x + rng.gauss(0, .6) for c in classes for x in center[c]])
os.mkdir('photos'), os.mkdir('new-photos')
classes = [i // 20 for i in range(60)]
for i, c in enumerate(classes): png(f'photos/{i:02}.png', c)
for i in range(6): png(f'new-photos/{i}.png', i % 3)
features('features.npy', classes)
features('new-features.npy', [0, 1, 2])
npy('truth.npy', '<i4', 'i', (60,), classes)
P

# section TITLE: the lines of the section's blocks, those in another language left out
section() { awk -v title="## $1" '/^## / { on = $0 == title } /^```/ { inside = !inside; plain = $0 == "```"; next } on && inside && plain' "$readme"; }
{ section "Your own images"; section "A library"; } | sed '/^$/d; s/--budget 30m/--budget 2s/' >commands
failures=0
while IFS= read -r line; do
    timeout -s KILL 60 bash -c "$line" >out 2>err </dev/null || { echo "README: $line: exit $?: $(tail -n 3 err)"; failures=$((failures + 1)); }
done <commands
[ "$(grep -c '^build/conr' commands)" -ge 14 ] || { echo "README: only $(grep -c '^build/conr' commands) commands were found"; failures=$((failures + 1)); }

# and they leave what the text says
[ "$(wc -l <paths.txt)" = 60 ] || { echo "paths.txt has $(wc -l <paths.txt) lines"; failures=$((failures + 1)); }
for file in runs/hog/report.html runs/features/embeddings.npy runs/features/report.html runs/graph/labels.csv runs/twelve/DONE runs/photos/report.html \
    clusters.csv new.csv again.csv new.npy neighbors.npy labels.npy; do
    [ -e "$file" ] || { echo "README: no $file"; failures=$((failures + 1)); }
done
# how far two seconds of training come differs, and so do K and which clusters have images
ls -d sorted/cluster-[0-9][0-9] >/dev/null 2>&1 || { echo "README: no clusters in sorted: $(find sorted | head -n 3)"; failures=$((failures + 1)); }
[ "$(find sorted -name '*.png' | wc -l)" = 60 ] || { echo "sorted has $(find sorted -name '*.png' | wc -l) images"; failures=$((failures + 1)); }
[ "$(tail -n +2 new.csv | cut -d, -f2 | sort -u | wc -l)" = 3 ] || { echo "new features of three kinds: $(cut -d, -f2 new.csv | paste -sd ' ')"; failures=$((failures + 1)); }
# no cluster of the built-in descriptor has stripes of two directions
paste -d' ' <(tail -n +2 clusters.csv | cut -d, -f2) <(seq 0 5 | awk '{ print $1 % 3 }') | sort -u >pairs
[ "$(wc -l <pairs)" = "$(cut -d' ' -f1 pairs | sort -u | wc -l)" ] || { echo "clusters.csv: $(cat clusters.csv)"; failures=$((failures + 1)); }
[ $failures = 0 ]
