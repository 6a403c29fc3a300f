#!/bin/bash
# The program as a user meets it: help, version, exit codes, one-line errors.
set -u
conr=$1
failures=0
# expect CODE STREAM TEXT ARGS...: exits with CODE, and TEXT is in stdout (1) or stderr (2)
expect() {
    local code=$1 stream=$2 text=$3
    shift 3
    local out err got
    err=$(mktemp)
    out=$("$conr" "$@" 2>"$err" </dev/null)
    got=$?
    local seen=$out
    [ "$stream" = 2 ] && seen=$(cat "$err")
    if [ "$got" != "$code" ]; then
        echo "conr $*: exit $got, not $code"; cat "$err"; failures=$((failures + 1))
    elif [[ $seen != *"$text"* ]]; then
        echo "conr $*: lacks '$text': $seen"; failures=$((failures + 1))
    elif [ "$code" != 0 ] && [ "$(wc -l <"$err")" != 1 ]; then
        echo "conr $*: not one line of error:"; cat "$err"; failures=$((failures + 1))
    elif [ "$code" != 0 ] && ! grep -qE '^conr: .+; .+' "$err"; then
        echo "conr $*: error lacks 'conr: WHAT: WHY; REMEDY':"; cat "$err"; failures=$((failures + 1))
    fi
    rm -f "$err"
}
expect 0 1 "conr 0." --version
expect 0 1 "Verbs:" --help
expect 0 1 "Verbs:" help
expect 0 1 "conr bench" help bench
expect 0 1 "conr bench" bench --help
expect 2 2 "no verb given"
expect 2 2 "no such verb" frobnicate
expect 2 2 "no such verb" help frobnicate
expect 2 2 "no such flag" bench --frobnicate
expect 2 2 "given twice" bench --threads 1 --threads 2
expect 2 2 "lacks its value" bench --threads
expect 2 2 "takes no value" bench --json=1
expect 2 2 "not a whole number" bench --threads two
expect 2 2 "not a number" bench --seconds never
expect 2 2 "no such benchmark" bench everything
expect 2 2 "2 operands" bench ops ops
expect 1 2 "no such device" bench ops --device abacus

# a full disk on stdout is an error, not a silent loss
if "$conr" --version >/dev/full 2>/dev/null; then echo "conr --version > /dev/full: exit 0"; failures=$((failures + 1)); fi

# one JSON object and nothing else
json=$("$conr" bench ops --device ref --seconds 0 --json) || { echo "bench --json failed"; failures=$((failures + 1)); }
[[ $json == "{"*"}" && $json == *'"op": "conv_forward"'* && $json == *'"peak_flops"'* ]] ||
    { echo "bench --json: $json"; failures=$((failures + 1)); }

[ "$failures" = 0 ] && echo "the program behaves"
exit "$failures"
