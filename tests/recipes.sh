#!/bin/bash
# Every recipe parses and has its header, and docs/recipes.md lists all settings and recipes.  With
# --update the list of settings in docs/recipes.md is rewritten.
set -u
conr=$(realpath "$1")
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

# By name, and listed with what their first lines say.
list=$("$conr" recipes) || complain "conr recipes: fails"
for recipe in recipes/*.yaml; do
    name=$(basename "$recipe" .yaml)
    [ "$("$conr" train --recipe "$name" --check)" = "$("$conr" train --recipe "$recipe" --check)" ] ||
        complain "--recipe $name: not the settings of $recipe"
    echo "$list" | grep -q "^$name  *[A-Z]" || complain "conr recipes: does not list $name"
    for key in expected reached; do # the whole line, as it stands in the file
        line=$(sed -n "s/^# $key  *//p" "$recipe")
        echo "$list" | grep -qF "    $(printf '%-9s' $key) $line" || complain "conr recipes: not what $recipe has under $key"
    done
    [ "$("$conr" recipes "$name")" = "$(cat "$recipe")" ] || complain "conr recipes $name: does not print the file"
done
echo "$list" | grep -q '^              after stage 1: NMI 76.7' || complain "conr recipes: loses what follows the first line"
[ "$(echo "$list" | grep -c '^[a-z]')" = "$(ls recipes/*.yaml | wc -l)" ] || complain "conr recipes: not one entry per recipe"
"$conr" recipes --json | python3 -c '
import json, sys
rows = {r["name"]: r for r in json.load(sys.stdin)["recipes"]}
assert rows["demo"]["expected"].startswith("NMI 0.58"), rows["demo"]
assert rows["demo"]["path"].endswith("/recipes/demo.yaml"), rows["demo"]
assert "paper" not in rows["demo"]["reached"] and "conr train" not in rows["demo"]["reached"]' || complain "conr recipes --json: wrong"
(
    cd "$(mktemp -d)" || exit 1 # a file of the user goes before the recipe of that name
    echo "lr: 0.123" >demo
    "$conr" train --recipe demo --check | grep -q '^lr: 0.123' || { echo "--recipe demo: ignores the file of this name"; exit 1; }
    rm demo && mkdir demo # but a folder, as make demo leaves one, does not
    "$conr" train --recipe demo --check >/dev/null || { echo "--recipe demo: taken for the folder of this name"; exit 1; }
    rmdir demo "$PWD"
) || failures=$((failures + 1))
says=$("$conr" train --recipe cifar11 --check 2>&1) && complain "--recipe cifar11: accepted"
[[ $says == "conr: --recipe cifar11: no recipe of this name"*"; conr recipes lists them" ]] || complain "--recipe cifar11: says '$says'"
says=$("$conr" recipes ../recipes/demo 2>&1) && complain "conr recipes ../recipes/demo: accepted"

"$conr" train --settings --json | grep -q '"key": "stage2_crop_scale"' || complain "train --settings --json lacks a setting"

[ "$failures" = 0 ] && echo "the recipes are in order"
exit "$failures"
