#!/bin/bash
# Makes a wheel complete: the libraries it needs go into it (auditwheel), and so do their licenses.
#   scripts/wheel-repair.sh WHEEL FOLDER
# Needs auditwheel and patchelf; knows the licenses of packages of dpkg and of rpm.
set -euo pipefail
wheel=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# license LIBRARY: the file that says under which terms the package of this library is distributed
license() {
    local package
    if command -v dpkg-query >/dev/null; then
        # /lib may be /usr/lib, under which dpkg does not know its files
        package=$(dpkg-query -S "$1" 2>/dev/null || dpkg-query -S "*/${1##*/}" 2>/dev/null) || return 1
        package=${package%%:*}
        echo "$package /usr/share/doc/$package/copyright"
    else
        package=$(rpm -qf --qf '%{NAME}\n' "$1") || return 1
        rpm -ql --licensefiles "$package" | sed "s/^/$package /"
    fi
}

auditwheel repair -w "$work/repaired" "$wheel"
cd "$work"
"$python" -m zipfile -e "$wheel" before
"$python" -m wheel unpack -d after repaired/*.whl >/dev/null
about=$(echo after/*/*.dist-info)
# what is in the repaired wheel, found on this machine through the one before
find before -type f \( -name '*.so' -o -path '*/bin/*' \) -exec env LD_LIBRARY_PATH="$PWD/before/conr" ldd {} + |
    sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u | while read -r library; do
    name=$(basename "$library")
    compgen -G "after/*/conr.libs/${name%%.so*}-*" >/dev/null || continue # not in the wheel: of every Linux
    license "$library" | while read -r package file; do
        [ -s "$file" ] || { echo "wheel-repair: $name: its package $package has no license text" >&2; exit 1; }
        mkdir -p "$about/licenses/$package"
        cp -L "$file" "$about/licenses/$package/"
    done
    echo "$name"
done >bundled
n=$(find after/*/conr.libs -type f | wc -l)
[ "$(wc -l <bundled)" = "$n" ] || { echo "wheel-repair: $n libraries in the wheel, licenses of $(wc -l <bundled)" >&2; exit 1; }
rm -f "$out"/conr-*.whl
"$python" -m wheel pack -d "$out" after/* >/dev/null
ls -l "$out"/*.whl
