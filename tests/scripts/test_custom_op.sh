#!/usr/bin/env bash
# examples/custom-op, built against an installed dltrain: the layer and the loss train, their gradients are right, the run
# resumes and evaluates, on one rank and on two; plug-ins that do not fit are refused.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed() {
  echo "test_custom_op: $1" >&2
  [ ! -f "$work/out" ] || cat "$work/out" >&2
  exit 1
}
refuses() { # refuses TEXT ARGUMENT…
  local text=$1 status=0
  shift
  "$dltrain" "$@" >"$work/out" 2>&1 || status=$?
  [ $status = 2 ] || failed "exit code $status instead of 2: dltrain $*"
  grep -qF "$text" "$work/out" || failed "no message '$text': dltrain $*"
}

cmake --install "$BUILD_DIR" --prefix "$work/prefix" >/dev/null
dltrain=$work/prefix/bin/dltrain
cp -r "$SOURCE_DIR/examples/custom-op" "$work/example"
cd "$work/example"
rm -rf build
cuda=OFF # the kernels for GPUs are compiled where the program has a CUDA engine
[ ! -f "$work/prefix/lib/libdltrain_cuda.so" ] || cuda=ON
nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$BUILD_DIR/CMakeCache.txt")
{
  CUDACXX=$nvcc cmake -B build -DSNAKE_CUDA=$cuda -DCMAKE_CUDA_ARCHITECTURES=90 "-DCMAKE_PREFIX_PATH=$work/prefix" -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)"
  cmake --build build
} >"$work/out" 2>&1 || failed "the example does not build"

# The blocks of the README make the data and train.
sed -n '/^awk/,/^```/p' README.md | sed '/^```/d' >commands.sh
PATH=$work/prefix/bin:$PATH bash -e commands.sh >"$work/out" 2>&1 || failed "a command of README.md fails"
grep -q "PASS  gradient check" "$work/out" || failed "check does not compare the gradients with finite differences"
"$dltrain" eval runs/waves --result "$work/eval.json" >"$work/out" 2>&1
python3 - "$work/eval.json" <<'PYTHON' || failed "the loss is not that of the wave's 0.9 quantile"
import json, sys
loss = json.load(open(sys.argv[1]))["eval_loss"]
# The noise is uniform within 0.3: no prediction is better than 0.9 * 0.1 * 0.3 / 2 on average; a constant has 0.12.
assert 0.012 < loss < 0.03, loss
PYTHON

if [ $cuda = ON ]; then
  "$dltrain" plan waves.yaml --gpu h100-80g >"$work/out" 2>&1 || failed "the plan for a GPU fails"
  grep -q "snake_backward" "$work/out" || failed "the plan for a GPU does not show the op"
fi

# Two ranks, and a run that resumes, end in the same loss as one.
common=(-s training.max_steps=40 -s logging.logging_steps=40)
"$dltrain" train waves.yaml "${common[@]}" -s name=one >"$work/out" 2>&1 || failed "one rank fails"
"$dltrain" launch --nproc-per-node 2 --config waves.yaml "${common[@]}" -s name=two >"$work/out" 2>&1 || failed "two ranks fail"
"$dltrain" train waves.yaml "${common[@]}" -s name=half --stop-at 20 >"$work/out" 2>&1 || true
"$dltrain" train --resume runs/half >"$work/out" 2>&1 || failed "the run does not resume"
python3 - <<'PYTHON' || failed "losses differ"
import json
one, two, half = (json.load(open(f"runs/{name}/summary.json"))["eval_loss"] for name in ("one", "two", "half"))
assert one == half and abs(one - two) < 1e-5 * one, (one, two, half)
PYTHON

# Runs name the plug-in by its path; one that was moved, or another copy, is given with -s.
mkdir moved
mv build/libsnake.so moved/
refuses "No such file or folder" eval runs/waves
"$dltrain" eval runs/waves -s plugins=moved/libsnake.so >"$work/out" 2>&1 || failed "eval with a moved plug-in fails"
"$dltrain" train --resume runs/one -s plugins=moved/libsnake.so -s training.max_steps=41 >"$work/out" 2>&1 || failed "no run resumes with a moved plug-in"
refuses "unknown type 'quantile'" eval runs/waves -s 'plugins=[]'
mv moved/libsnake.so build/

refuses "No such file or folder: build/libsnak.so" train waves.yaml -s plugins=build/libsnak.so
refuses "libm.so.6 is not a plug-in of dltrain" train waves.yaml -s plugins=/lib/x86_64-linux-gnu/libm.so.6
cp build/libsnake.so build/again.so
refuses "the op 'snake' of the plug-in" train waves.yaml -s 'plugins=[build/libsnake.so, build/again.so]'
sed 's/_ABI 0x/_ABI 0x1/; s/0x1\(.\{15\}\)./0x1\1/' "$work/prefix/include/dltrain/nn/plugin_abi.h" >"$work/abi.h"
cp "$work/abi.h" "$work/prefix/include/dltrain/nn/plugin_abi.h"
cmake --build build >"$work/out" 2>&1
refuses "was built with the headers of another version of dltrain" train waves.yaml
