#!/usr/bin/env bash
# Makes docs/report.png: the top of `dltrain report` over three runs of configs/recipes/digits-convnet.yaml with
# different learning rates. Needs build/dltrain and Chromium.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/prepare_digits.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for rate in 1e-3 3e-3 1e-2; do
  build/dltrain train configs/recipes/digits-convnet.yaml --quiet --output-dir "$work/learning-rate/$rate" \
    -s optimizer.learning_rate=$rate -s training.max_steps=600 -s evaluation.eval_steps=50
done
build/dltrain report "$work/learning-rate" -o "$work/report.html"
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --virtual-time-budget=5000 --window-size=1400,860 \
  --screenshot="$PWD/docs/report.png" "file://$work/report.html" 2>/dev/null
