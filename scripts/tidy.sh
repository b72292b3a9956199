#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy over lib/, kernels/ (without CUDA) and apps/; every warning is
# an error. Uses clang-tidy 15 or newer if it is installed (14 cannot parse g++ 12's <ranges>),
# otherwise that of the Python package clang-tidy, in a virtual environment under build/.
#
#   scripts/tidy.sh [FILE.cpp]...
set -euo pipefail
cd "$(dirname "$0")/.."

tidy=
for candidate in clang-tidy-16 clang-tidy-18 clang-tidy-17 clang-tidy-19 clang-tidy; do
  command -v $candidate >/dev/null || continue
  version=$($candidate --version | sed -n 's/.*version \([0-9]*\).*/\1/p' | head -n 1)
  if [ "${version:-0}" -ge 15 ]; then
    tidy=$candidate
    break
  fi
done
if [ -z "$tidy" ]; then
  tidy=build/tidy-venv/bin/clang-tidy
  if [ ! -x $tidy ]; then
    python3 -m venv build/tidy-venv
    build/tidy-venv/bin/python -m pip install --quiet 'clang-tidy==18.1.8'
  fi
fi

# One compile command per source, which the unity build does not have.
cmake -S . -B build/tidy -G Ninja -DCMAKE_BUILD_TYPE=Release -DDLTRAIN_UNITY=OFF -DDLTRAIN_CUDA=OFF \
  -DDLTRAIN_BUILD_TESTS=OFF --log-level=WARNING >/dev/null
# The build generates this header, which sources include.
ninja -C build/tidy generated/ops/definitions.h >/dev/null
files=("$@")
if [ ${#files[@]} = 0 ]; then
  mapfile -t files < <(find lib kernels apps -name '*.cpp' ! -path 'kernels/cuda/*' | sort)
fi
# clang's headers lack omp.h, so g++'s is used, with an attribute that clang does not know. OpenMP itself is off: clang
# 18 refuses some lambdas with it.
mkdir -p build/tidy-include
ln -sf "$(g++ -print-file-name=include/omp.h)" build/tidy-include/omp.h
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "${TIDY_JOBS:-$(nproc)}" "$tidy" -p build/tidy --quiet --extra-arg="-I$PWD/build/tidy-include" --extra-arg='-D__malloc__(x)=' --extra-arg=-fno-openmp --extra-arg=-Wno-unknown-pragmas --warnings-as-errors='*'
echo "clang-tidy: ${#files[@]} files checked"
