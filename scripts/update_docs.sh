#!/usr/bin/env bash
# Regenerates docs/config.md and docs/config.schema.json from the registry of keys that the parser uses.
# The tests fail if they are out of date.
set -euo pipefail
cd "$(dirname "$0")/.."
dltrain=${DLTRAIN:-build/dltrain}
for document in "config.md --reference" "config.schema.json"; do
  read -r file arguments <<<"$document"
  "$dltrain" schema ${arguments:+"$arguments"} >"docs/$file.part"
  mv "docs/$file.part" "docs/$file"
done
