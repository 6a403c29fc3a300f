# expect.sh: sourced by tests of the program: a folder to work in, and what a command must do.
# Wants $conr, the program.  Each complaint adds one to $failures.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
complain() { echo "$*" | head -c 1000; echo; failures=$((failures + 1)); }
# ok ARGS...: succeeds
ok() { timeout -s KILL 60 "$conr" "$@" --quiet --threads 2 >out 2>err </dev/null || complain "conr $*: exit $?: $(cat err)"; }
# says TEXT ARGS...: succeeds and prints TEXT
says() {
    local text=$1
    shift
    ok "$@"
    grep -qF -- "$text" out || complain "conr $*: lacks '$text': $(cat out)"
}
# refused CODE TEXT ARGS...: exits with CODE and one line of error that contains TEXT
refused() {
    local code=$1 text=$2 got
    shift 2
    timeout -s KILL 60 "$conr" "$@" --quiet --threads 2 >out 2>err </dev/null
    got=$?
    [ "$got" = "$code" ] || complain "conr $*: exit $got, not $code: $(cat err)"
    [ "$(wc -l <err)" = 1 ] && grep -qE '^conr: .+; .+' err && grep -qF -- "$text" err ||
        complain "conr $*: not one line with '$text': $(cat err)"
}
# has RUN FILE...: the run has these files
has() { local run=$1 f; shift; for f in "$@"; do [ -s "$run/$f" ] || complain "$run has no $f"; done; }
