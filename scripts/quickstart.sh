#!/usr/bin/env bash
# From a fresh clone to a trained network: installs what is missing, builds build/dltrain and trains
# configs/recipes/digits-mlp.yaml on the UCI handwritten digits. The second time, nothing is
# installed, downloaded or compiled. Further arguments go to dltrain.
#
#   scripts/quickstart.sh [-s KEY=VALUE]...
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh build
cmake --preset release --log-level=WARNING >/dev/null
cmake --build build --target dltrain_programs
scripts/prepare_digits.sh
exec build/dltrain --config configs/recipes/digits-mlp.yaml --output-dir runs/quickstart --overwrite "$@"
