#!/usr/bin/env bash
# Regenerates docs/config.md from the registry of keys that the parser uses. The tests fail if it is out of date.
set -euo pipefail
cd "$(dirname "$0")/.."
"${DLTRAIN:-build/dltrain}" schema --reference >docs/config.md.part
mv docs/config.md.part docs/config.md
