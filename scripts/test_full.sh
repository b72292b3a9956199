#!/usr/bin/env bash
# The second half of scripts/test.sh --full (which calls it after building build/): sanitizers,
# fuzzers, clang-tidy, long campaigns, and the record under docs/records/. Every part is run even if
# an earlier one failed; the exit status is 0 only if all passed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

jobs=$(nproc)
export OMP_WAIT_POLICY=passive
record=docs/records/$(date -u +%Y-%m-%d)-test-full.md
logs=build/full-logs
mkdir -p docs/records "$logs"
rows=""
failed=no

run_part() { # run_part NAME COMMAND…: runs it with its output in a log, notes a row of the record
  local name=$1 log status=passed start=$SECONDS note
  log=$logs/${name// /-}.log
  shift
  echo "== $name (output: $log)"
  if ! "$@" >"$log" 2>&1; then
    status=FAILED
    failed=yes
    tail -n 40 "$log"
  fi
  note=$(grep -E 'tests passed|^fuzz_|files checked' "$log" | tr '\n' ' ')
  rows+="| $name | $status | $((SECONDS - start)) | $note |"$'\n'
}

sanitizer_tests() { # sanitizer_tests PRESET CTEST_ARGUMENTS…
  local preset=$1
  shift
  cmake --preset "$preset" --log-level=WARNING >/dev/null &&
    cmake --build --preset "$preset" --parallel "$jobs" &&
    ctest --preset "$preset" --parallel "$jobs" --label-exclude '^long$' "$@"
}

fuzzers() {
  cmake --preset fuzz --log-level=WARNING >/dev/null || return 1
  local source name
  for source in tests/fuzz/*.cpp; do
    [ -e "$source" ] || continue
    name=$(basename "$source" .cpp)
    cmake --build --preset fuzz --parallel "$jobs" --target "fuzz_$name" || return 1
    mkdir -p "build-fuzz/corpus/$name"
    "build-fuzz/fuzz_$name" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=2048 \
      -print_final_stats=1 "build-fuzz/corpus/$name" "tests/fuzz/seeds/$name" || return 1
    echo "fuzz_$name: no failure in ${FUZZ_SECONDS:-60} s;"
  done
}

run_part "address and undefined sanitizers" sanitizer_tests asan
run_part "thread sanitizer" sanitizer_tests tsan
run_part "fuzzers" fuzzers
run_part "clang-tidy" scripts/tidy.sh

ctest --test-dir build --parallel "$jobs" --output-on-failure 2>&1 | tee "$logs/tests.log"
[ "${PIPESTATUS[0]}" = 0 ] || failed=yes

{
  echo "# scripts/test.sh --full, $(date -u '+%Y-%m-%d %H:%M') UTC"
  echo
  echo "Revision $(git describe --always --dirty --abbrev=12), $(c++ --version | head -n 1), $(nproc) x $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)."
  echo
  echo "| part | result | seconds | |"
  echo "|---|---|---:|---|"
  printf '%s' "$rows"
  echo
  echo "All tests, long campaigns included, Release:"
  echo
  echo '```'
  sed -n '/tests passed/,$p' "$logs/tests.log"
  echo '```'
} >"$record"
[ $failed = no ]
