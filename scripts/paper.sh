#!/bin/sh
# The paper's CIFAR-10 numbers: stage 1 once, CoNR, and every row of the ablation from the same
# stage-1 checkpoint.  About 26 minutes on one H200 for the first run and 5.5 for each further row.
# Finished runs are not repeated if the script is called again.
#
#   scripts/paper.sh cifar-10-batches-bin runs/paper
#
# CONR: the program (build-cuda/conr); RECIPE: recipes/cifar10.yaml, or another with both stages;
# UNTIL: the last epoch of the ablation rows (880: less than half the time, and CoNR has converged by
# then).
set -eu
data=${1:?give the images and a folder: scripts/paper.sh cifar-10-batches-bin runs/paper} out=${2:?give a folder for the runs}
conr=${CONR:-build-cuda/conr}
recipe=${RECIPE:-recipes/cifar10.yaml}
epoch=$("$conr" train --recipe "$recipe" --check | sed -n 's/^stage1_epochs: *//p')

all=$out/all
if [ ! -e "$all/DONE" ]; then
    if [ -e "$all/checkpoint.safetensors" ]; then
        "$conr" train --resume --data "$data" --out "$all"
    else
        "$conr" train --recipe "$recipe" --data "$data" --out "$all" --set compact=true
    fi
fi
rows() { # FOLDER, then the flags that vary
    folder=$1
    shift
    "$conr" sweep --recipe "$recipe" --data "$data" --from "$all@$epoch" --stage 2 --out "$out/$folder" \
        ${UNTIL:+--set "until=$UNTIL"} "$@"
}
rows unfiltered --set boundary=false --grid neighborhood=local,conaff
rows filtered --grid neighborhood=local,conaff --grid relaxation=false,true
"$conr" report "$out/unfiltered" "$out/filtered" --out "$out/ablation.html"
cat "$out/unfiltered/table.md" "$out/filtered/table.md"
