#!/usr/bin/env bash
# Includes go downwards only, and the checker finds what it is there to find.
set -euo pipefail
cd "$SOURCE_DIR"
python3 scripts/check_includes.py --self-test
python3 scripts/check_includes.py
