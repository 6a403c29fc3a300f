#!/bin/sh
# The shared library exports conr_* and nothing else, and everything that conr.h declares.
set -eu
library=$1
header=$(dirname "$0")/../include/conr.h
shown=$(nm -D --defined-only "$library" | awk '{print $3}' | sort -u)
foreign=$(echo "$shown" | grep -vE '^(conr_|_init$|_fini$|__bss_start|_edata|_end)' || true)
[ -z "$foreign" ] || { echo "exports beyond conr_*:" $foreign; exit 1; }
promised=$(grep -oE '^CONR_API.*\bconr_[a-z0-9_]+\(' "$header" | grep -oE 'conr_[a-z0-9_]+\(' | tr -d '(' | sort -u)
[ "$(echo "$promised" | wc -l)" -ge 5 ] || { echo "found too few functions in conr.h"; exit 1; }
for name in $promised; do
    echo "$shown" | grep -qx "$name" || { echo "conr.h declares $name, but the library lacks it"; exit 1; }
done
echo "$(echo "$promised" | wc -l) functions, no others"
