#!/usr/bin/env python3
"""Checks the rows of RESULTS.md against the logs they came from, docs/log/runs/*.jsonl.

    scripts/check-results.py            # says which rows a log confirms, and which have none
    scripts/check-results.py --list     # every row, one line each

A kept log is the log.jsonl of a run, cut down to its evaluations and its last line, after a first
line that says which row it belongs to: command, commit and seed.  Scores must agree as printed, the
last epoch with the epochs of the method, the minutes within a tenth.  Exit 1: a row and its log
differ, or a log has no row.
"""
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def rows(text):
    """The rows of the first table: data, method, seeds, scores, minutes, command, commit."""
    data = ""
    for line in text.split("\n| data |")[1].split("\n\n")[0].splitlines()[2:]:
        cells = [c.strip().replace("**", "") for c in line.strip("|").split("|")]
        data = cells[0] or data
        command, _, commit = cells[5].partition(", ")
        yield {"data": data, "method": cells[1], "seeds": cells[2], "scores": cells[3],
               "minutes": cells[4].split(",")[0], "command": command, "commit": commit}


def read_log(path):
    """The first line, the last evaluation, and the seconds of the whole run."""
    first, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    scored = [line for line in lines if "nmi" in line]
    timed = [line for line in lines if "seconds" in line]
    return first, scored[-1], timed[-1]["seconds"]


def differences(row, first, last, seconds):
    """What the row says that its log does not."""
    said = row["scores"].split(" / ")
    for name, text in zip(("nmi", "acc", "ari"), said):
        if text != "-" and text != f"{last[name]:.3f}".lstrip("0"):
            yield f"{name.upper()} {text}, in the log {last[name]:.4f}"
    epochs = re.search(r"(\d+)(?: \+ (\d+))?(?=,|$| \()", row["method"])
    if epochs and last["epoch"] != sum(int(n) for n in epochs.groups() if n):
        yield f"{epochs[0]} epochs, in the log {last['epoch']}"
    if last["epoch"] != first["epochs"]:
        yield f"its log ends at epoch {last['epoch']} of {first['epochs']}"
    if row["minutes"] not in ("", "-") and abs(float(row["minutes"]) - seconds / 60) > \
            max(0.1, 0.01 * float(row["minutes"])):
        yield f"{row['minutes']} minutes, in the log {seconds / 60:.1f}"


def main():
    table = list(rows((ROOT / "RESULTS.md").read_text()))
    logs = {path: read_log(path) for path in sorted((ROOT / "docs/log/runs").glob("*.jsonl"))}
    used, wrong, confirmed, none = set(), 0, 0, []
    for row in table:
        name = f"{row['data']}: {row['method']}, seed {row['seeds']} ({row['command']}, {row['commit']})"
        found = [p for p, (first, _, _) in logs.items()
                 if (first["command"], first["commit"], str(first["seed"]))
                 == (row["command"], row["commit"], row["seeds"])]
        if not found:
            none.append(name)
            continue
        used.update(found)
        faults = [f for p in found for f in differences(row, *logs[p])]
        confirmed += not faults
        wrong += bool(faults)
        for fault in faults:
            print(f"differs   {name}: {fault}")
        if not faults and "--list" in sys.argv[1:]:
            print(f"confirmed {name}: {found[0].name}")
    for path in logs:
        if path not in used:
            print(f"differs   {path.name}: no row of RESULTS.md has its command, commit and seed")
            wrong += 1
    for name in none:
        print(f"no log    {name}")
    print(f"{confirmed} rows confirmed by their logs, {len(none)} without a log, {wrong} differences")
    return 1 if wrong or not confirmed else 0


if __name__ == "__main__":
    sys.exit(main())
