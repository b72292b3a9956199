#!/usr/bin/env bash
# The second half of scripts/test.sh --full (which calls it after building build/): sanitizers,
# fuzzers, clang-tidy and long tests, in parts of less than an hour each on two cores.
#
#   scripts/test_full.sh [PART...]     runs the given parts, or all
#
# JOBS (all cores) is the number of builds and tests at a time: parts that use one core, such as layouts and the long
# campaigns, can run beside others with JOBS=1.
#
# The result of a part is stored in build/full/ with the revision of the sources. A part that has passed is not
# repeated for the same revision. A failed part does not stop the others. When every part has a result, a
# record is written to docs/records/, which names the revision of each part where they differ. The exit status
# is 0 only if all parts passed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

jobs=${JOBS:-$(nproc)}
export OMP_WAIT_POLICY=passive
all_parts="asan-build asan-core asan-ops asan-train asan-apps tsan fuzz tidy highway bench tests layouts long-runs long-damage long-hostile long-foreign long-strangers"
state=build/full
mkdir -p "$state"
# Tests of the program read them; scripts/test.sh has made them where it called this script.
{ scripts/prepare_digits.sh && scripts/prepare_tables.sh; } >/dev/null || exit
# A hash of the sources, including uncommitted changes, without documentation.
revision=$(git ls-files -co --exclude-standard -- . ':!docs' ':!*.md' | xargs -d '\n' sha1sum 2>/dev/null | sha1sum | cut -c1-12)

asan_tests() { # asan_tests CTEST_ARGUMENTS…
  ctest --preset asan --parallel "$jobs" --no-tests=error --label-exclude '^long$' "$@"
}
build_preset() {
  cmake --preset "$1" --log-level=WARNING >/dev/null && cmake --build --preset "$1" --parallel "$jobs" -- --quiet
}
fuzzers() {
  local names
  mapfile -t names < <(basename -s .cpp tests/fuzz/*.cpp)
  cmake --preset fuzz --log-level=WARNING >/dev/null || return 1
  cmake --build --preset fuzz --parallel "$jobs" --target "${names[@]/#/fuzz_}" -- --quiet || return 1
  # shellcheck disable=SC2016  # the inner shell expands its own arguments
  xargs -n 1 -P "$jobs" bash -c '
    mkdir -p "build-fuzz/corpus/$1"
    "build-fuzz/fuzz_$1" -max_total_time="$0" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
      "build-fuzz/corpus/$1" "tests/fuzz/seeds/$1" 2>&1 && echo "fuzz_$1: no failure in $0 s;"' "${FUZZ_SECONDS:-60}" <<<"${names[*]}"
}
long_tests() { # long_tests CTEST_ARGUMENTS…; prints what the campaigns counted
  ctest --test-dir build --parallel "$jobs" --no-tests=error --verbose -L '^long$' "$@"
}

run_part() {
  case "$1" in
    asan-build) build_preset asan ;;
    asan-core) asan_tests -R '^(base|config|device|tensor|comm|text|data|graph|nn|optim|passes|compile|telemetry|launch|sweep|fuzz)' ;;
    asan-ops) asan_tests -R '^(ops|golden|cuda)' ;;
    asan-train) asan_tests -R '^(run|generate|profile)' ;;
    asan-apps) asan_tests -R '^(apps|faults)' ;;
    tsan) build_preset tsan && ctest --preset tsan --parallel "$jobs" --no-tests=error --label-exclude '^long$' ;;
    fuzz) fuzzers ;;
    tidy) TIDY_JOBS=$jobs scripts/tidy.sh ;;
    bench) cmake --build build --parallel "$jobs" --target bench_kernels bench_data bench_plan bench_text bench_overlap bench_checkpoint bench_search -- --quiet ;;
    tests) ctest --test-dir build --parallel "$jobs" --no-tests=error --output-on-failure --label-exclude '^long$' ;;
    layouts)
      DLTRAIN_LAYOUTS=2000 build/test_run 'random layouts with delayed messages*' &&
        echo "layouts: 2000 random ones, each with the losses of one rank;"
      ;;
    highway) scripts/newest_highway.sh ;;
    long-runs) long_tests -E '^faults: (damage|foreign|strangers)' ;;
    long-damage) long_tests -R '^faults: damage: .* damaged' ;;
    long-hostile) long_tests -R '^faults: damage: .* hostile' ;;
    long-foreign | long-strangers) long_tests -R "^faults: ${1#long-}" ;;
    *)
      echo "unknown part '$1'; the parts are: $all_parts" >&2
      return 2
      ;;
  esac
}

name=$(git describe --always --dirty --abbrev=12)
read -r -a parts <<<"${*:-$all_parts}"
for part in "${parts[@]}"; do
  if [[ "$(cat "$state/$part" 2>/dev/null)" == "$revision "*" passed "* ]]; then
    echo "== $part: already passed on this revision"
    continue
  fi
  echo "== $part (output: $state/$part.log)"
  start=$SECONDS
  if run_part "$part" >"$state/$part.log" 2>&1; then result=passed; else result=FAILED; fi
  note=$(grep -hoE '[0-9]+% tests passed.*|^fuzz_.*|clang-tidy: .*|(damage|hostile inputs|foreign files|strangers|layouts): .*|[0-9]+ (hangs|signals), .*|[^ ]+: [0-9]+ equal variants.*' \
    "$state/$part.log" | tr '\n' ';' | sed 's/;$//; s/;/; /g')
  echo "$revision $name $result $((SECONDS - start)) $(date -u '+%Y-%m-%d %H:%M') $note" >"$state/$part"
  [ $result = passed ] || tail -n 40 "$state/$part.log"
done

failed=no
rows=""
for part in $all_parts; do
  if ! read -r _ at result seconds day time note 2>/dev/null <"$state/$part"; then
    echo "no result yet: $part"
    exit 1
  fi
  [ "$result" = passed ] || failed=yes
  rows+="| $part | $result | $at | $seconds | $day $time | $note |"$'\n'
done
record=docs/records/$(date -u +%Y-%m-%d)-test-full.md
{
  echo "# scripts/test.sh --full, $(date -u '+%Y-%m-%d %H:%M') UTC"
  echo
  echo "$(c++ --version | head -n 1), $(nproc) x $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)."
  echo
  echo "| part | result | revision | seconds | when (UTC) | |"
  echo "|---|---|---|---:|---|---|"
  printf '%s' "$rows"
} >"$record"
echo "record: $record"
[ $failed = no ]
