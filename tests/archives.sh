#!/bin/bash
# Archives as SRC: .zip, .tar, .tar.gz and WebDataset's shards give the images, labels and results of
# the folder they were made from; damaged and hostile ones are one line of error or a counted image.
set -u
cd "$(dirname "$0")/.." || exit 1
conr=$(realpath "$1")
"$conr" --version | grep -q '^reads.*archives' || { echo "archives are not built in"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
complain() { echo "$*"; failures=$((failures + 1)); }
images=$PWD/golden/images
cd "$work" || exit 1
python3 - "$images" <<'PY'
import io, json, os, shutil, sys, tarfile, zipfile
images = sys.argv[1]
names = [n for n in sorted(os.listdir(images)) if n.endswith((".png", ".jpg", ".webp"))]
for i, n in enumerate(names):
    os.makedirs(f"photos/{'ab'[i % 2]}/deep", exist_ok=True)
    shutil.copy(f"{images}/{n}", f"photos/{'ab'[i % 2]}/{'deep/' if i % 3 == 0 else ''}{n}")
files = sorted(os.path.join(d, f) for d, _, fs in os.walk("photos") for f in fs)
for name, method in ("stored.zip", zipfile.ZIP_STORED), ("packed.zip", zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(name, "w", method) as z:
        for f in reversed(files):
            z.write(f)
        z.writestr("__MACOSX/photos/a/x.png", b"no image")
        z.writestr("photos/.hidden.png", b"no image")
for name, mode in ("plain.tar", "w"), ("packed.tar.gz", "w:gz"):
    with tarfile.open(name, mode, format=tarfile.PAX_FORMAT) as t:
        for f in reversed(files):
            t.add(f, arcname="./" + f)
def add(t, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    t.addfile(info, io.BytesIO(data))
os.mkdir("shards")
for k in range(2):
    with tarfile.open(f"shards/part-{k}.tar", "w") as t:
        for i, n in enumerate(names[k::2]):
            add(t, f"{i:04d}.{n.split('.')[1]}", open(f"{images}/{n}", "rb").read())
            if k: add(t, f"{i:04d}.cls", b"%d\n" % (i % 3 + 2))
            else: add(t, f"{i:04d}.json", json.dumps({"label": i % 3 + 2}).encode())
good = open(f"{images}/rgb.png", "rb").read()
with tarfile.open("tricks.tar", "w") as t:
    for i in range(40):
        add(t, f"{i}.png", good)
    add(t, "../../out.png", good)
    add(t, "/etc/x.png", good)
    info = tarfile.TarInfo("link.png"); info.type = tarfile.SYMTYPE; info.linkname = "/etc/passwd"
    t.addfile(info)
    add(t, "0.png", good)                      # twice
    add(t, "raw.cr2", b"raw")
open("cut.tar", "wb").write(open("plain.tar", "rb").read()[:20000])
open("cut.zip", "wb").write(open("packed.zip", "rb").read()[:5000])
open("cut.tar.gz", "wb").write(open("packed.tar.gz", "rb").read()[:5000])
with tarfile.open("empty.tar", "w") as t: add(t, "notes.txt", b"nothing")
with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("a.png", good)
    with z.open("zeros.png", "w") as f:
        for _ in range(300): f.write(bytes(1 << 20))
open("x.parquet", "wb").write(b"PAR1" + bytes(100))
PY
"$conr" info photos --paths | sed 's,^photos/,,' >want || complain "info photos fails"
"$conr" kmeans photos --clusters 3 --seed 1 --out want.npy --quiet >/dev/null 2>&1 || complain "kmeans photos fails"
for a in stored.zip packed.zip plain.tar packed.tar.gz; do
    "$conr" info $a --paths 2>err | sed "s,^$a/photos/,," >got || complain "$a: $(cat err)"
    cmp -s want got || complain "$a: other paths: $(diff want got | head -3)"
    "$conr" info $a | grep -q 'classes *2: a 14, b 14' || complain "$a: other classes: $("$conr" info $a)"
    "$conr" kmeans $a --clusters 3 --seed 1 --out got.npy --threads 2 --quiet >/dev/null 2>err || complain "$a: kmeans: $(cat err)"
    cmp -s want.npy got.npy || complain "$a: other clusters"
done
"$conr" info shards >got 2>&1
grep -q 'images *28' got && grep -q 'classes *5: 0 0, 1 0, 2 10, 3 10, 4 8' got || complain "shards: $(cat got)"
[ "$("$conr" info shards --paths | sed -n 1p)" = shards/part-0.tar/0000.webp ] || complain "shards: $("$conr" info shards --paths | sed -n 1p)"
# several archives by a pattern or a list are those of the folder
"$conr" info shards --paths >want
for several in 'shards/part-{0..1}.tar' 'shards/part-{1,0}.tar' shards/part-0.tar,shards/part-1.tar 'shards/{part,part}-{0..1}.tar'; do
    "$conr" info "$several" --paths >got 2>err || complain "$several: $(cat err)"
    cmp -s want got || complain "$several: other paths"
done
cp shards/part-0.tar shards-009.tar; cp shards/part-1.tar shards-010.tar
[ "$("$conr" info 'shards-{009..010}.tar' --json | grep -c '"images": 28')" = 1 ] || complain "shards-{009..010}.tar: $("$conr" info 'shards-{009..010}.tar' 2>&1)"
cp plain.tar 'a,b.tar'
"$conr" info 'a,b.tar' >/dev/null 2>err || complain "a,b.tar: $(cat err)"
"$conr" info tricks.tar >got 2>err
grep -q 'images *41, and 2 that cannot be read' got || complain "tricks.tar: $(cat got err)"
"$conr" info tricks.tar --paths 2>/dev/null | grep -q 'tricks.tar/etc/x.png' || complain "tricks.tar: no etc/x.png"
# error ARCHIVE TEXT: one line with the text, in little memory (but a sanitizer maps terabytes)
limit=4000000
nm -D "$conr" | grep -q __asan_init && limit=unlimited
error() {
    (ulimit -v $limit; timeout 60 "$conr" info "$1" >/dev/null 2>err)
    [ $? = 1 ] && [ "$(wc -l <err)" = 1 ] && grep -q "^conr: .*$2.*; " err || complain "$1: $(cat err)"
}
error cut.tar 'cut.tar'
error cut.zip 'cut.zip'
error cut.tar.gz 'cut.tar.gz'
error empty.tar 'contains no images'
error x.parquet 'Parquet is not read'
error bomb.zip 'bomb.zip'
error 'shards/part-{0..2}.tar' 'shards/part-2.tar'
error 'shards/part-{0..1.tar' 'has braces other'
error 'shards/part-{{0..1},2}.tar' 'has braces other'
error 'shards/part-{0..999999999}.tar' 'more than 100,000'
error plain.tar,photos 'photos: is not an archive'
error 'photos,more' 'photos,more'
"$conr" cluster packed.zip --features hog --clusters 2 --sort-into sorted --out run --quiet >/dev/null 2>err || complain "cluster: $(cat err)"
[ "$(find sorted -type f 2>/dev/null | wc -l)" = 28 ] || complain "sort-into: $(find sorted | head -3)"
grep -q '^packed.zip/photos/a/' run/labels.csv || complain "labels.csv: $(sed -n 2p run/labels.csv)"
[ -s run/report.html ] || complain "no report"
"$conr" duplicates stored.zip --out d.csv >/dev/null 2>err || complain "duplicates: $(cat err)"
[ $failures = 0 ] && echo "archives: all is well"
exit $failures
