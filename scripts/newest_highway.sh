#!/usr/bin/env bash
# Builds dltrain with the newest Highway besides build/, which has the distribution's, runs the tests of ops with it,
# and compares the kernels that both choose. Fails if a test fails or if a step of a network takes another variant.
#
#   scripts/newest_highway.sh
#
# The source of Highway is part of the source archive of numpy, the newest for this Python.
set -euo pipefail
cd "$(dirname "$0")/.."

folder="build-highway"
mkdir -p $folder
# What is older than a month is no longer the newest.
if [ -z "$(find $folder/installed.stamp -mtime -30 2>/dev/null)" ]; then
  rm -rf $folder/installed* $folder/library $folder/pip-*
  # pip would go on to configure numpy, for ten minutes; without its build tools it stops once the sources are unpacked.
  TMPDIR=$PWD/$folder python3 -m pip download --quiet --no-clean --no-build-isolation --no-deps --no-binary numpy --dest $folder numpy >$folder/pip.log 2>&1 || true
  rm -rf $folder/highway
  mv $folder/pip-download-*/numpy_*/numpy/_core/src/highway $folder/highway || {
    cat $folder/pip.log >&2
    exit 1
  }
  rm -rf $folder/pip-*
  cmake -S $folder/highway -B $folder/library -G Ninja -DCMAKE_BUILD_TYPE=Release -DHWY_ENABLE_TESTS=OFF -DHWY_ENABLE_EXAMPLES=OFF \
    -DHWY_ENABLE_CONTRIB=OFF -DCMAKE_INSTALL_PREFIX="$PWD/$folder/installed" >/dev/null
  cmake --build $folder/library --target install -- --quiet >/dev/null
  touch $folder/installed.stamp
fi
cmake -S . -B $folder/build -G Ninja -DCMAKE_BUILD_TYPE=Release -DDLTRAIN_CUDA=OFF -DDLTRAIN_BUILD_TESTS=ON \
  -DCMAKE_PREFIX_PATH="$PWD/$folder/installed" --log-level=WARNING >/dev/null
cmake --build $folder/build --target dltrain test_ops -- --quiet
$folder/build/dltrain version
ctest --test-dir $folder/build --parallel "$(nproc)" -R '^ops:' --no-tests=error --label-exclude '^long$' --output-on-failure

# Fixed threads and no trace: only the names of the chosen variants are compared, and the times are printed.
for case in mlp lenet cnn28 lstm_char gpt_char; do
  for build in build $folder/build; do
    OMP_NUM_THREADS=1 "$build/dltrain" profile configs/bench/$case.yaml --quiet --warmup 1 --steps 3 --device cpu \
      --output-dir $folder/profile --result "$folder/$case-${build%%/*}.json" >/dev/null
  done
  python3 - $folder/$case-build.json $folder/$case-$folder.json <<'PYTHON'
import json, sys
ours, newest = (json.load(open(path)) for path in sys.argv[1:])
variants = [sorted((op["name"], op["detail"], op["calls"]) for op in result["ops"]) for result in (ours, newest)]
if variants[0] != variants[1]:
    sys.exit(f"{ours['name']}: other variants with the newest Highway: {sorted(set(variants[0]) ^ set(variants[1]))}")
print(f"{ours['name']}: {len(variants[0])} equal variants, {newest['step_ms'] / ours['step_ms']:.2f} of the time")
PYTHON
done
