#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy over lib/, kernels/ (without CUDA) and apps/; every warning is
# an error. Uses clang-tidy 15 or newer if it is installed (14 cannot parse g++ 12's <ranges>),
# otherwise that of the Python package clang-tidy, in a virtual environment under build/.
#
# Without arguments the units of the build (up to 32 sources each) are checked as one file each, since most of the time of a
# source is spent on shared headers. A file that has passed is not checked again until it, a header or the checks change.
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

files=("$@")
size=1
[ ${#files[@]} -gt 0 ] || size=32
rm -rf build/tidy/*/units
cmake -S . -B build/tidy -G Ninja -DCMAKE_BUILD_TYPE=Release -DDLTRAIN_UNIT_SIZE=$size -DDLTRAIN_CUDA=OFF \
  -DDLTRAIN_BUILD_TESTS=OFF --log-level=WARNING >/dev/null
# The build generates these headers, which sources include.
ninja -C build/tidy generated/ops/definitions.h generated/nn/plugin_abi.h >/dev/null
if [ $size -gt 1 ]; then
  # The sources replace their #include, because clang's analyzer skips the functions of included files.
  for unit in build/tidy/*/units/*.cpp; do
    folder=$(basename "$(dirname "$(dirname "$unit")")")
    awk -F '"' -v folder="$folder" '{
      file = folder "/" $2
      print "#line 1 \"" file "\""
      while ((getline line < file) > 0) print line
    }' "$unit" >"$unit.joined"
    mv "$unit.joined" "$unit"
  done
  mapfile -t files < <(sed -n "s|^ *\"file\": \"$PWD/\(.*\)\",*|\1|p" build/tidy/compile_commands.json |
    grep -E '^(lib|kernels|apps|build/tidy/[a-z]*/units)/' | grep -v '^kernels/cuda/')
fi
# clang's headers lack omp.h, so g++'s is used, with an attribute that clang does not know. OpenMP itself is off: clang
# 18 refuses some lambdas with it.
mkdir -p build/tidy-include
ln -sf "$(g++ -print-file-name=include/omp.h)" build/tidy-include/omp.h
extra=("-I$PWD/build/tidy-include" '-D__malloc__(x)=' -fno-openmp -Wno-unknown-pragmas -Wno-unknown-warning-option)
# The analyzer looks into small functions at any depth, or it would not know that check_internal() throws.
extra+=(-Xclang -analyzer-config -Xclang ipa-always-inline-size=12)
mkdir -p build/tidy/passed
# What all files depend on.
common=$({
  git ls-files -co --exclude-standard -- '*.h' .clang-tidy scripts/tidy.sh | xargs -d '\n' sha1sum
  find build/tidy/generated -name '*.h' -print0 | sort -z | xargs -0 sha1sum
  "$tidy" --version
} | sha1sum)
check() { # check FILE CLANG_TIDY_COMMAND…
  local stamp
  stamp=build/tidy/passed/$(echo "$common $1" | cat - "$1" | sha1sum | cut -c1-40)
  [ -f "$stamp" ] || { "${@:2}" "$1" && touch "$stamp"; }
}
export -f check
export common
# shellcheck disable=SC2016  # the inner shell expands its own arguments
printf '%s\0' "${files[@]}" | xargs -0 -P "${TIDY_JOBS:-$(nproc)}" -I FILE bash -c 'check "$@"' _ FILE "$tidy" -p build/tidy --quiet \
  "${extra[@]/#/--extra-arg=}" --warnings-as-errors='*'
echo "clang-tidy: ${#files[@]} files checked"
