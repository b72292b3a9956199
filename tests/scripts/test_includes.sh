#!/usr/bin/env bash
# Includes go downwards only, type names are unique, components have few places, and the checkers find what they are there to find.
set -euo pipefail
cd "$SOURCE_DIR"
python3 scripts/check_includes.py --self-test
python3 scripts/check_includes.py
python3 scripts/check_names.py --self-test
python3 scripts/check_names.py
python3 scripts/count_places.py
