#!/bin/bash
# The demo: clusters the bundled 10,000 images of Fashion-MNIST by their pixels, by the features of
# BYOL and by those of CoNR, and scores all three against labels that none of them has seen.
set -euo pipefail
cd "$(dirname "$0")/.."
conr=${1:-build/conr}
sample=samples/fashion-mnist
mkdir -p demo

# scores EPOCH: NMI, ACC and ARI of the evaluation after that epoch
scores() {
    sed -n "s/.*\"epoch\":$1,.*\"nmi\":\([0-9.]*\),\"acc\":\([0-9.]*\),\"ari\":\([0-9.]*\).*/\1 \2 \3/p" demo/run/log.jsonl | tail -1
}
setting() { sed -n "s/^$1: //p" demo/run/options.yaml; }

echo "10,000 images of Fashion-MNIST, 10 clusters; training takes one to two minutes on two cores"
pixels=$("$conr" kmeans $sample --clusters 10 --metric euclidean --out demo/pixels.npy --quiet)
rm -rf demo/run
"$conr" train --recipe recipes/demo.yaml --data $sample --out demo/run "${@:2}" >demo/result.txt
printf '\n%-34s %6s %6s %6s\n' "" NMI ACC ARI
row() { printf "%-34s %6.3f %6.3f %6.3f\n" "$@"; }
# shellcheck disable=SC2046,SC2086
row "k-means on pixels" $(echo "$pixels" | sed 's/[A-Z]*//g')
# shellcheck disable=SC2046
row "k-means on BYOL's features" $(scores "$(setting stage1_epochs)")
# shellcheck disable=SC2046
row "CoNR" $(scores "$(setting epochs)")
if cp demo/run/report.html demo/report.html; then printf '\nOpen the report in a browser: demo/report.html'; fi
printf '\nThe cluster of each image: demo/run/labels.csv; about the run: %s info demo/run\n' "$conr"
