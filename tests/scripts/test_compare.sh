#!/usr/bin/env bash
# bench/compare.py with stand-ins for dltrain and PyTorch: rounds are interleaved, the best of each
# side is compared, and what is missing is refused with a clear message.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
compare=("python3" "$SOURCE_DIR/bench/compare.py")

fail() {
  echo "test_compare: $1" >&2
  cat "$work/out" >&2
  exit 1
}
expect_code() {
  local expected=$1 code=0
  shift
  "$@" >"$work/out" 2>&1 || code=$?
  [ "$code" = "$expected" ] || fail "exit code $code, expected $expected: $*"
}

cat >"$work/dltrain" <<'FAKE'
#!/usr/bin/env bash
echo "dltrain $OMP_NUM_THREADS $*" >>"$CALLS"
while [ $# -gt 0 ]; do
  [ "$1" = --result ] && result=$2
  shift
done
n=$(grep -c ^dltrain "$CALLS")
echo "{\"step_ms_min\": $((n + 1)), \"step_ms_median\": 9, \"peak_rss_mib\": 70, \"first_step_ms\": 50}" >"$result"
FAKE
cat >"$work/python" <<'FAKE'
#!/usr/bin/env bash
[ "$1" = -c ] && exit "${NO_TORCH:-0}"
echo "torch $*" >>"$CALLS"
echo '{"ms_min": 8, "ms_median": 9, "peak_rss_mib": 700, "start_to_first_step_s": 2.5, "steps": 30, "others_busy_cores": 0}'
FAKE
chmod +x "$work/dltrain" "$work/python"
export CALLS=$work/calls

expect_code 0 "${compare[@]}" mlp --rounds 2 --threads 3 --peers eager --dltrain "$work/dltrain" --python "$work/python" --json "$work/json"
[ "$(cut -d ' ' -f 1 "$CALLS" | tr '\n' ' ')" = "torch dltrain torch dltrain " ] || fail "the rounds are not interleaved"
grep -q '^dltrain 3 --config configs/bench/mlp.yaml --max-steps 31 ' "$CALLS" || fail "dltrain was called otherwise"
# 8 ms against the better of 2 and 3 ms; 70 of 700 MiB; 2.5 s against 50 ms.
grep -q '^| mlp | dltrain | 2.000 | 9.000 | 70 | 50 | 4.00x | 0.10 | 50.0x |$' "$work/out" || fail "the table is wrong"
python3 -c 'import json, sys; assert len(json.load(open(sys.argv[1]))["mlp"]["dltrain"]["rounds"]) == 2' "$work/json"

expect_code 2 "${compare[@]}" nonsense --dltrain "$work/dltrain" --python "$work/python"
grep -q 'no case nonsense.*mlp' "$work/out" || fail "the known cases are not named"
expect_code 2 env NO_TORCH=1 "${compare[@]}" mlp --dltrain "$work/dltrain" --python "$work/python"
grep -q 'has no PyTorch' "$work/out" || fail "missing PyTorch is not named"
expect_code 2 "${compare[@]}" mlp --dltrain "$work/none" --python "$work/python"
grep -q 'none is missing' "$work/out" || fail "the missing executable is not named"
