#!/usr/bin/env bash
# The kernels for AVX-512 are compiled for each of the targets of Highway that have it, and for no other.
set -euo pipefail

sources=${SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/target.cpp" <<'CODE'
#include <hwy/highway.h>

#include "cpu/avx512.h"
#if DLTRAIN_AVX512() != EXPECTED
#error
#endif
static_assert(!EXPECTED || (HWY_TARGET <= HWY_AVX3 && HWY_MAX_BYTES == 64));
static_assert(!ABOVE || HWY_TARGET < HWY_AVX3);
CODE

check() { # check PROCESSOR EXPECTED ABOVE [FLAG...]: ABOVE is 1 where the target is one above HWY_AVX3
  local processor=$1 expected=$2 above=$3
  shift 3
  "${CXX:-c++}" -std=c++20 -fsyntax-only "-march=$processor" -DHWY_COMPILE_ONLY_STATIC "-DEXPECTED=$expected" \
    "-DABOVE=$above" "-I$sources/kernels" "$@" "$work/target.cpp" || {
    echo "wrong for $processor" >&2
    exit 1
  }
}

[ "$(uname -m)" = x86_64 ] || exit 77
check x86-64 0 0
check haswell 0 0
check skylake-avx512 1 0
check icelake-server 1 1 -mavxvnni -DHWY_WANT_AVX3_DL=1
check sapphirerapids 1 1 -DHWY_WANT_AVX3_DL=1
