#!/usr/bin/env bash
# Times a first build with ccache off: configuring and compiling the program as
# scripts/quickstart.sh does, then compiling the tests as scripts/test.sh does. Prints wall-clock and processor seconds.
#
#   bench/build_time.sh [FOLDER]     builds in FOLDER (default: a new one under /tmp), and removes it
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -e "${1:-}" ]; then
  echo "$1 is there already: name a new folder" >&2
  exit 2
fi
work=$(mktemp -d)
folder=${1:-$work/build}
trap 'rm -rf "$work" "$folder"' EXIT
export CCACHE_DISABLE=1
TIMEFORMAT='%R %U %S'

timed() { # timed NAME COMMAND…
  local name=$1 seconds
  shift
  seconds=$({ time "$@" >"$work/log" 2>&1; } 2>&1) || {
    tail -n 30 "$work/log" >&2
    exit 1
  }
  echo "$seconds" | awk -v name="$name" '{printf "%-28s %7.1f s, %7.1f s of the processor\n", name, $1, $2 + $3}'
}

mkdir -p "$folder"
echo "$(nproc) cores, $(c++ --version | head -n 1)"
configure() { cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release "$@"; }
timed "configure" configure -DDLTRAIN_CUDA=OFF -DDLTRAIN_BUILD_TESTS=OFF
timed "program" cmake --build "$folder" --target dltrain
timed "configure with tests" configure -DDLTRAIN_CUDA=AUTO -DDLTRAIN_BUILD_TESTS=ON
timed "tests and CUDA engine" cmake --build "$folder"
