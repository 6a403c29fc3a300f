#!/bin/sh
# Tests the Python package with the library just built, without installing anything: all tests or
# those named.  Uses the first Python that has NumPy and pytest; tests with torch and scikit-learn
# run if that Python has them.
set -eu
library=$1 tests=${2:-python/tests}
cd "$(dirname "$0")/.."
for python in ${PYTHON:-} python3 /usr/bin/python3; do
    "$python" -c 'import numpy, pytest' 2>/dev/null || continue
    OMP_WAIT_POLICY=passive CONR_LIBRARY=$library PYTHONPATH=python PYTHONDONTWRITEBYTECODE=1 exec "$python" -m pytest "$tests"
done
echo "skipped: no Python here has numpy and pytest; apt-get install python3-numpy python3-pytest"
exit 77
