#!/usr/bin/env bash
# From a fresh clone to a trained network: installs missing packages, builds build/dltrain and trains
# configs/recipes/digits-mlp.yaml on the UCI handwritten digits. A second call installs, downloads and compiles
# nothing. Further arguments are passed to dltrain.
#
#   scripts/quickstart.sh [-s KEY=VALUE]...
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh build
if [ ! -f build/CMakeCache.txt ]; then
  options=(-DDLTRAIN_BUILD_TESTS=OFF -DDLTRAIN_UNIT_SIZE=64)
  if [ ! -e /proc/driver/nvidia/version ]; then
    options+=(-DDLTRAIN_CUDA=OFF)
    echo "No NVIDIA driver: building for the CPU only (with the GPU engine: cmake --preset cuda && cmake --build --preset cuda)"
  fi
  cmake --preset release --log-level=WARNING "${options[@]}" >/dev/null
fi
# The compiler needs up to 2 GB for a file.
jobs=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 2000000))
jobs=$((jobs < 1 ? 1 : jobs < $(nproc) ? jobs : $(nproc)))
if [ -t 1 ]; then
  cmake --build build --target dltrain_programs -- -j $jobs
else
  [ -x build/dltrain ] || echo "Compiling dltrain: a few minutes on two cores ..."
  cmake --build build --target dltrain_programs -- --quiet -j $jobs
fi
scripts/prepare_digits.sh
exec build/dltrain --config configs/recipes/digits-mlp.yaml --output-dir runs/quickstart --overwrite "$@"
