#!/bin/bash
# RESULTS.md agrees with the logs that are kept of its runs; and the check notices if it does not.
set -u
cd "$(dirname "$0")/.." || exit 1
failures=0
complain() { echo "$*"; failures=$((failures + 1)); }
scripts/check-results.py | tail -1 || exit 1
scripts/check-results.py >/dev/null || { scripts/check-results.py; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# refused WORDS FILE SED: with this change to a file, the check fails and says so
refused() {
    rm -rf "${work:?}"/*
    cp --parents -r RESULTS.md scripts/check-results.py docs/log/runs "$work"
    sed -i "$3" "$work/$2"
    cmp -s "$2" "$work/$2" && complain "$3 changes nothing in $2"
    says=$("$work/scripts/check-results.py") && complain "accepted: $3 in $2"
    [[ $says == *"$1"* ]] || complain "$3 in $2: says '$says'"
}
refused "ACC .864, in the log 0.8630" RESULTS.md 's/\.738 \/ \.863/.738 \/ .864/'
refused "401 + 100 epochs" RESULTS.md 's/400 + 100/401 + 100/'
refused "7.2 minutes" RESULTS.md 's/| 7\.8, H200/| 7.2, H200/'
refused "NMI .738" docs/log/runs/l-seed1.jsonl 's/"nmi":0\.7380/"nmi":0.7399/'
refused "no row" docs/log/runs/l-seed1.jsonl '1s/601595f/0000000/'
refused "ends at epoch 480" docs/log/runs/l-seed1.jsonl '/"epoch":500,"obj/d'
[ "$failures" = 0 ] && echo "the results are those of the logs"
exit "$failures"
