#!/bin/bash
# Every recipe parses and has its header, and docs/recipes.md lists all settings and recipes.  With
# --update the list of settings in docs/recipes.md is rewritten.
set -u
conr=$1
cd "$(dirname "$0")/.." || exit 1
page=docs/recipes.md
failures=0
complain() { echo "$*"; failures=$((failures + 1)); }

listed() { sed -n '/<!-- settings -->/,/<!-- end -->/p' "$page" | sed '1d;$d'; }
if [ "${2:-}" = --update ]; then
    fresh=$(mktemp)
    { sed '/<!-- settings -->/q' "$page"; "$conr" train --settings; sed -n '/<!-- end -->/,$p' "$page"; } >"$fresh"
    cat "$fresh" >"$page"
    rm -f "$fresh"
fi
[ "$(listed)" = "$("$conr" train --settings)" ] ||
    complain "$page: its settings are not those of conr train --settings; run tests/recipes.sh $conr --update"

for recipe in recipes/*.yaml; do
    out=$("$conr" train --recipe "$recipe" --check 2>&1) || complain "$recipe: $out"
    # what it resolves to is a recipe again, with the same settings
    again=$(mktemp --suffix=.yaml)
    echo "$out" >"$again"
    [ "$("$conr" train --recipe "$again" --check 2>&1)" = "$out" ] || complain "$recipe: its settings do not read back"
    rm -f "$again"
    for words in '^# expected ' '^# reached ' "^# conr train --recipe $recipe --data "; do
        grep -q "$words" "$recipe" || complain "$recipe: lacks a line '$words'"
    done
    grep -q "$(basename "$recipe" .yaml)" "$page" || complain "$page: does not name $recipe"
done
"$conr" train --settings --json | grep -q '"key": "stage2_crop_scale"' || complain "train --settings --json lacks a setting"

[ "$failures" = 0 ] && echo "the recipes are in order"
exit "$failures"
