#!/bin/bash
# conr open: over HTTP (tests/open_http.py), and with --browser in Chromium (tests/open.py).  Takes
# seconds: a few made images.
set -euo pipefail
conr=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
python=/usr/bin/python3
[ -x $python ] || python=python3
command -v $python >/dev/null || { echo "skipped: no Python"; exit 77; }
"$conr" open /nonexistent 2>&1 | grep -q microhttpd && { echo "skipped: built without libmicrohttpd"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_WAIT_POLICY=passive

# 90 images of the sample as PNG files, in color, one of them twice
$python - "$here/../samples/fashion-mnist" <<'P'
import gzip, os, shutil, struct, sys, zlib
def png(path, side, rows):
    chunk = lambda t, d: struct.pack('>I', len(d)) + t + d + struct.pack('>I', zlib.crc32(t + d))
    raw = zlib.compress(b''.join(b'\0' + r for r in rows))
    with open(path, 'wb') as f:
        f.write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', side, side, 8, 2, 0, 0, 0)) +
                chunk(b'IDAT', raw) + chunk(b'IEND', b''))
images = gzip.open(sys.argv[1] + '/t10k-images-idx3-ubyte.gz').read()
labels = gzip.open(sys.argv[1] + '/t10k-labels-idx1-ubyte.gz').read()
os.mkdir('images')
for i in range(89):
    pixels = images[16 + 784 * i:16 + 784 * (i + 1)]
    tint = [(255, 90, 60), (80, 200, 90), (70, 110, 255)][labels[8 + i] % 3]
    png(f'images/{i:03}.png', 28, [b''.join(bytes(v * t // 255 for t in tint) for v in pixels[28 * y:28 * y + 28]) for y in range(28)])
shutil.copy('images/000.png', 'images/089.png')
P
"$conr" cluster "$work/images" --features hog --refine none --method kmeans --clusters 6 --out run --quiet --no-report --threads 1 >/dev/null
case ${2:-} in
--browser) $python "$here/open.py" "$conr" run ;;
*) $python "$here/open_http.py" "$conr" run images "${@:2}" ;;
esac
