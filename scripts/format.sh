#!/usr/bin/env bash
# Formats every C++ and CUDA file of the project with clang-format 14 (the output of other versions differs).
# --check changes nothing, prints the differences and fails if there are any.
#
#   scripts/format.sh [--check]
set -euo pipefail
cd "$(dirname "$0")/.."

formatter=
for candidate in clang-format-14 clang-format; do
  if command -v $candidate >/dev/null && $candidate --version | grep -q 'version 14\.'; then
    formatter=$candidate
    break
  fi
done
if [ -z "$formatter" ]; then
  echo "clang-format 14 is not installed: apt-get install clang-format-14" >&2
  exit 1
fi

mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run --Werror)
find apps bench examples lib kernels tests -type f \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 -r -n 20 -P "$(nproc)" "$formatter" --style=file "${mode[@]}"
