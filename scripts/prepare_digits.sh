#!/usr/bin/env bash
# Writes the UCI handwritten digits to data/digits.csv.gz: 1,797 rows of 64 grey values (8 x 8, 0 to 16)
# and the digit, from the scikit-learn package. Does nothing, and needs no network, if the file
# exists and its checksum is right.
#
#   scripts/prepare_digits.sh [FILE]
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-data/digits.csv.gz}
checksum=09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22

checksum_of() { sha256sum "$1" | cut -d ' ' -f 1; }

if [ -f "$target" ]; then
  [ "$(checksum_of "$target")" = "$checksum" ] && exit 0
  echo "$target has another checksum than expected; downloading it again" >&2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "Downloading the digits dataset from the scikit-learn package ..."
scripts/scikit_learn_data.sh "$work" || {
  echo "or put the file at $target (sha256 $checksum)" >&2
  exit 1
}
found=$(checksum_of "$work/digits.csv.gz")
if [ "$found" != "$checksum" ]; then
  echo "the digits in this scikit-learn package differ from the expected data: sha256 $found, expected $checksum" >&2
  exit 1
fi
mkdir -p "$(dirname "$target")"
mv "$work/digits.csv.gz" "$target.part"
mv "$target.part" "$target"
echo "$target: 1797 digits"
