#!/bin/bash
# The fault driver on a build: tests/faults/run.sh BUILD_DIR [--short | --seconds N | --all] ...
# (drive.py says more).  Needs Python 3 and its standard library, and Linux with the GNU C library.
set -u
here=$(dirname "$0")
python=python3
[ -x /usr/bin/python3 ] && python=/usr/bin/python3 # starts faster than a wrapper
command -v $python >/dev/null || { echo "skipped: no python3"; exit 77; }
[ -e "$1/libfault_shim.so" ] || { echo "skipped: no libfault_shim.so in $1"; exit 77; }
exec env PYTHONDONTWRITEBYTECODE=1 $python "$here/drive.py" "$@"
