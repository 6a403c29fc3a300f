#!/bin/bash
# The slow checks: sanitizers over everything, failed calls, fuzzing, reports in a browser, ranks under
# mpirun, the Python package in a fresh environment, all CUDA architectures, exported encoders, and,
# if torch and scikit-learn are installed, whether the golden files can be reproduced.
set -euo pipefail
cd "$(dirname "$0")/.."
step() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

step "sanitizers over everything, including the program"
cmake --preset asan >/dev/null
cmake --build build-asan
ctest --test-dir build-asan --output-on-failure -j "$(nproc)"

step "no matrix product is faster than the peak that conr bench measures"
build/peak_test

step "stopping at every report of a training, bits flipped in its files"
CONR_TEST_LONG=1 build/stop_test
CONR_TEST_LONG=1 build/damage_test

step "failed calls, kills, stops, damaged files, two writers: five minutes, and one with sanitizers"
tests/faults/run.sh build --seconds 300
tests/faults/run.sh build-asan --seconds 60

step "fuzzing every parser, a minute each"
scripts/deps.sh fuzz
scripts/fuzz.sh 60

step "reports in a browser"
scripts/deps.sh browser
tests/report.sh build/conr
tests/open.sh build/conr --browser
tests/open.sh build/conr --long

step "types of the Python package, event files read by TensorBoard"
venv=build/venv-types
[ -x $venv/bin/python ] || python3 -m venv $venv || true
if $venv/bin/pip install -q --disable-pip-version-check mypy numpy tensorboard; then
    $venv/bin/mypy
    PYTHON=$venv/bin/python tests/plumbing.sh build/conr
else
    echo "skipped: mypy and tensorboard cannot be installed from PyPI"
fi

step "ranks over MPI"
scripts/deps.sh mpi
cmake --preset mpi >/dev/null
cmake --build build-mpi
ctest --test-dir build-mpi --output-on-failure -j "$(nproc)"

step "pip install . in a fresh virtual environment"
python=/usr/bin/python3
$python -c 'import ensurepip' 2>/dev/null || python=python3
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
$python -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check . pytest
mkdir "$venv/checkout" # so that the installed package is tested, not the checkout
cp -r README.md include golden samples "$venv/checkout"
mkdir "$venv/checkout/python"
cp -r python/tests python/examples "$venv/checkout/python"
(cd "$venv/checkout" && env -u CONR_LIBRARY "$venv/bin/python" -m pytest -q python/tests)

if command -v nvcc >/dev/null; then
    step "CUDA, all architectures"
    cmake --preset cuda -DCONR_MPI=ON >/dev/null
    cmake --build build-cuda
else
    echo "skipped: no nvcc"
fi

step "exported encoders in ONNX Runtime and torchvision"
venv=build/venv-export
[ -x $venv/bin/python ] || python3 -m venv $venv || true
$venv/bin/python -c 'import onnxruntime' 2>/dev/null || $venv/bin/pip install -q onnxruntime numpy ||
    echo "skipped ONNX Runtime: cannot be installed from PyPI"
for python in $venv/bin/python /usr/bin/python3; do
    if $python -c 'import numpy' 2>/dev/null; then $python scripts/check_export.py build/conr && $python scripts/check_encoders.py build/conr; fi
done

for make in golden/make*.py; do
    if /usr/bin/python3 -c 'import torch, torchvision, sklearn' 2>/dev/null; then
        step "$make reproduces the committed files"
        /usr/bin/python3 "$make" --check
    else
        echo "skipped $make: needs python3-torch, python3-torchvision, python3-sklearn"
    fi
done
step "all checks passed"
