#!/usr/bin/env bash
# Every C++ and CUDA file is as clang-format 14 writes it.
set -euo pipefail
exec "$SOURCE_DIR/scripts/format.sh" --check
