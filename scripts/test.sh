#!/usr/bin/env bash
# Builds build/dltrain and the tests, and runs them. The checks of style, includes and scripts
# are ctest entries too, so ctest's summary covers everything.
#
#   scripts/test.sh [--full [PART...]]
#
# --full adds: AddressSanitizer with UndefinedBehaviorSanitizer over all tests, ThreadSanitizer over
# the threaded parts, every fuzzer for FUZZ_SECONDS (60), clang-tidy, and the long tests, in parts
# (listed in scripts/test_full.sh) of less than an hour each on two cores. A part that has
# passed on this revision is not repeated, so an interrupted command can be continued. After the last part
# a dated record is written to docs/records/.
set -euo pipefail
cd "$(dirname "$0")/.."

full=no
case "${1:-}" in
  "") ;;
  --full)
    full=yes
    shift
    ;;
  *)
    echo "usage: $0 [--full [PART...]]" >&2
    exit 2
    ;;
esac

jobs=$(nproc)
# Several tests run concurrently, so waiting threads must sleep instead of spinning.
export OMP_WAIT_POLICY=passive

if [ $full = yes ]; then
  scripts/install_dependencies.sh full
else
  scripts/install_dependencies.sh test
fi
scripts/prepare_digits.sh
scripts/prepare_tables.sh
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  scripts/cuda_disassembler.sh || true  # without it the tests of machine code are skipped
fi
cmake --preset release -DDLTRAIN_BUILD_TESTS=ON -DDLTRAIN_CUDA=AUTO -DDLTRAIN_WERROR=ON --log-level=WARNING >/dev/null
cmake --build --preset release --parallel "$jobs"
if [ $full = yes ]; then
  exec scripts/test_full.sh "$@"
fi
exec ctest --test-dir build --parallel "$jobs" --output-on-failure --label-exclude '^long$'
