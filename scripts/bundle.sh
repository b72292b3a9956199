#!/usr/bin/env bash
# Packs a relocatable dltrain: the executable, the CUDA engine, the op checker, the shared libraries
# they need (not glibc's, not NVIDIA's), configurations, golden runs, the
# losses of the CPU that a GPU is compared with, and scripts/gpu_check.py.
#
#   scripts/bundle.sh [BUILD_DIR] [OUTPUT.tar.gz|.tar.zst]     default: build, build/dltrain-bundle.tar.gz
#
# BUILD_DIR must hold a finished build with the CUDA engine. The archive must be smaller than 60 MiB and
# unpacks into one folder. It runs on machines with the same glibc as this one or a newer one.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:-build}
output=${2:-$build/dltrain-bundle.tar.gz}
limit_mib=60

for file in dltrain gpu_check libdltrain_cuda.so; do
  if [ ! -f "$build/$file" ]; then
    echo "$build/$file does not exist; build it with: cmake --preset cuda && cmake --build --preset cuda" >&2
    exit 1
  fi
done

if grep -q "this build has no cuDNN attention" "$build/libdltrain_cuda.so"; then
  echo "$build/libdltrain_cuda.so has no cuDNN attention, so language models would be many times slower; run scripts/cudnn_frontend.sh and build again" >&2
  exit 1
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/dltrain-bundle
mkdir -p "$root"/{bin,lib/dltrain,scripts,tests,docs/gpu}

# CMake writes the installed run paths ($ORIGIN/../lib/dltrain) into the copies. Only the programs and
# the engine are packed.
DESTDIR=$stage/install cmake --install "$build" --prefix /dltrain --strip >/dev/null
DESTDIR=$stage/install cmake --install "$build" --prefix /dltrain --strip --component bundle >/dev/null
mv "$stage/install/dltrain/bin/dltrain" "$stage/install/dltrain/bin/gpu_check" "$root/bin/"
mv "$stage/install/dltrain/lib/libdltrain_cuda.so" "$root/lib/"

# shellcheck source=scripts/libraries.sh
. scripts/libraries.sh
needed_libraries "$build/dltrain" "$build/gpu_check" "$build/libdltrain_cuda.so" | while read -r library; do
  cp -L "$library" "$root/lib/dltrain/"
done

cp -r configs "$root/"
cp -r tests/golden "$root/tests/"
if [ -f data/digits.csv.gz ]; then
  mkdir -p "$root/data"
  cp data/digits.csv.gz "$root/data/"
fi
cp scripts/gpu_check.py scripts/gpu_parts.py scripts/gpu_record.py "$root/scripts/"
cp docs/gpu/README.md "$root/docs/gpu/"
cp LICENSE "$root/"
"$build/dltrain" version >"$root/VERSION" || true
"$root/scripts/gpu_check.py" --engine cpu --work "$stage/curves" --curves "$root/curves.json"

mkdir -p "$(dirname "$output")"
case "$output" in
  *.zst) tar -C "$stage" -c dltrain-bundle | zstd -q -19 -T0 -f -o "$output" ;;
  *.gz) tar -C "$stage" -c dltrain-bundle | gzip -9 >"$output" ;;
  *)
    echo "$output: the name must end in .tar.zst or .tar.gz" >&2
    exit 2
    ;;
esac
bytes=$(stat -c %s "$output")
echo "$output: $((bytes >> 20)) MiB, $(find "$root" -type f | wc -l) files"
if [ "$bytes" -ge $((limit_mib << 20)) ]; then
  echo "$output is larger than $limit_mib MiB" >&2
  exit 1
fi
