#!/usr/bin/env bash
# Every recorded configuration is read and its step is planned, without training (those of configs/:
# tests/apps/test_configs.py).
set -euo pipefail
cd "$SOURCE_DIR"
nowhere=$(mktemp -u) # whatever is in runs/ does not matter
count=0
for config in tests/golden/*/*.yaml; do
  if ! output=$("$DLTRAIN" --config "$config" --dry-run --output-dir "$nowhere" 2>&1); then
    echo "$config does not pass: $output" >&2
    exit 1
  fi
  count=$((count + 1))
done
echo "$count configurations planned"
# Each benchmark configuration is a case that bench/torch_bench.py has, and bench/compare.py lists it.
for config in configs/bench/*.yaml; do
  name=$(basename "$config" .yaml)
  grep -q "^    \"$name\": dict(" bench/torch_bench.py || {
    echo "bench/torch_bench.py has no case $name" >&2
    exit 1
  }
done
