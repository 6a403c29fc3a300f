# log.awk: checks a log.jsonl: every line is an object, steps never go back, none is logged twice.
# Use with LC_ALL=C.
!/^[{]"step":[0-9]+,"epoch":[^{}]*[}]$/ { print FILENAME " line " NR ": " $0; exit 1 }
{
    kind = /"loss"/ ? "loss" : /"warning"/ ? "warning" : /"baseline"/ ? "baseline" : "evaluation"
    step = substr($0, 9) + 0
}
step < last || (kind != "warning" && kind in at && step <= at[kind]) {
    print FILENAME " line " NR ": step " step " again: " $0
    exit 1
}
{ last = at[kind] = step }
