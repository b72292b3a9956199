#!/usr/bin/env bash
# Writes the generated documents anew: docs/config.md and docs/config.schema.json, from the registry of keys
# that the parser uses. The tests fail while they differ.
set -euo pipefail
cd "$(dirname "$0")/.."
dltrain=${DLTRAIN:-build/dltrain}
for document in "config.md --reference" "config.schema.json"; do
  read -r file arguments <<<"$document"
  "$dltrain" schema ${arguments:+"$arguments"} >"docs/$file.part"
  mv "docs/$file.part" "docs/$file"
done
