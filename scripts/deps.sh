#!/bin/sh
# Installs missing packages with apt.  Prints what it installs; does nothing if all are present.
#   deps.sh            what the build and `make test` need
#   deps.sh ci         also what .ci/run needs: clang, its OpenMP and clang-format
#   deps.sh mpi        also Open MPI
#   deps.sh browser    also what tests/report.sh needs: Chromium, driven from Python
#   deps.sh fuzz       also what scripts/fuzz.sh needs: clang's fuzzer and sanitizers
# What counts is whether a tool or library is present, not where it came from: a library in a folder
# of your own counts if pkg-config finds it (PKG_CONFIG_PATH).
set -eu

missing=""
want() { # want PACKAGE CHECK...: the package is missing if the check fails
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
has() { command -v "$1"; }
library() { has pkg-config && pkg-config --exists "$1"; }
# either the first python3 in PATH or Debian's has it
python_has() { python3 -c "import $1" || /usr/bin/python3 -c "import $1"; }

want gcc has cc
want libc6-dev test -e /usr/include/stdlib.h
want make has make
want cmake has cmake
want ninja-build has ninja
want pkg-config has pkg-config
want libyaml-dev library yaml-0.1
want libjansson-dev library jansson
want libjpeg-dev library libjpeg
want libpng-dev library libpng
want libwebp-dev library libwebp
want zlib1g-dev library zlib
want libgif-dev sh -c 'echo "#include <gif_lib.h>" | cc -E - -o /dev/null'
want libtiff-dev library libtiff-4
want libheif-dev library libheif
want libarchive-dev library libarchive
want libmicrohttpd-dev library libmicrohttpd
want libcmocka-dev library cmocka
want python3-numpy python_has "numpy, pytest"
want python3-pytest python_has "numpy, pytest"

for group in "$@"; do
    case $group in
    ci)
        want clang has clang
        want libomp-dev sh -c 'echo "int main(void){return 0;}" | clang -fopenmp -x c - -o /dev/null'
        want clang-format has clang-format
        ;;
    mpi)
        want libopenmpi-dev has mpicc
        want openmpi-bin has mpirun
        ;;
    browser)
        want chromium has chromium
        want chromium-driver has chromedriver
        want python3-selenium /usr/bin/python3 -c 'import selenium'
        ;;
    fuzz)
        want clang has clang
        want libclang-rt-dev sh -c 'echo "int LLVMFuzzerTestOneInput(const char *b, long n) { return b && n < 0; }" |
            clang -fsanitize=fuzzer,address,undefined -x c - -o /dev/null'
        ;;
    *)
        echo "deps: $group: no such group; give ci, mpi, browser or fuzz" >&2
        exit 2
        ;;
    esac
done

[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "deps: missing packages, and there is no apt-get:$missing; install them by other means" >&2
    exit 1
fi
sudo=""
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "deps: missing packages:$missing; run 'apt-get install$missing' as root" >&2
        exit 1
    fi
    sudo=sudo
fi
echo "deps: installing$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
$sudo apt-get install -y --no-install-recommends $missing >/dev/null 2>&1 ||
    { $sudo apt-get update && $sudo apt-get install -y --no-install-recommends $missing; }
