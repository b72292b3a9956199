#!/usr/bin/env bash
# Puts the UCI handwritten digits at data/digits.csv.gz: 1,797 rows of 64 grey values (8 x 8, 0 to 16)
# and the digit. They are taken out of the scikit-learn package, which is downloaded but neither
# installed nor run. Does nothing, and needs no network, when the file is there and its checksum is right.
#
#   scripts/prepare_digits.sh [FILE]
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-data/digits.csv.gz}
checksum=09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22

checksum_of() { sha256sum "$1" | cut -d ' ' -f 1; }

if [ -f "$target" ]; then
  [ "$(checksum_of "$target")" = "$checksum" ] && exit 0
  echo "$target has another checksum than expected; getting it anew" >&2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! python3 -m pip --version >/dev/null 2>&1; then
  python3 -m venv "$work/venv" || {
    echo "pip is needed to get the digits: apt-get install python3-pip" >&2
    exit 1
  }
  PATH="$work/venv/bin:$PATH"
fi
echo "Getting the digits data set from the scikit-learn package ..."
if ! python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$work" scikit-learn; then
  echo "the scikit-learn package could not be downloaded; check the network, or put the file at $target (sha256 $checksum)" >&2
  exit 1
fi
python3 - "$work" <<'PYTHON'
import glob, sys, zipfile
work = sys.argv[1]
wheel = glob.glob(work + "/scikit_learn-*.whl")[0]
with zipfile.ZipFile(wheel) as archive, open(work + "/digits.csv.gz", "wb") as out:
    out.write(archive.read("sklearn/datasets/data/digits.csv.gz"))
PYTHON
found=$(checksum_of "$work/digits.csv.gz")
if [ "$found" != "$checksum" ]; then
  echo "the digits in this scikit-learn package differ from the expected: sha256 $found, expected $checksum" >&2
  exit 1
fi
mkdir -p "$(dirname "$target")"
mv "$work/digits.csv.gz" "$target.part"
mv "$target.part" "$target"
echo "$target: 1797 digits"
