#!/usr/bin/env bash
# Writes the King James Bible to data/bible.txt: 31,102 verses, one per line, 4.2 MB of English text. The source is
# the distribution's package bible-kjv (apt-get install bible-kjv), so no download is needed.
# Does nothing if the file exists and its checksum is right.
#
#   scripts/prepare_bible.sh [FILE]
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-data/bible.txt}
checksum=b5c4940bcfeee072c0935b5200d0f9d88a00a0199cb0961d16133458fcdfae5d

checksum_of() { sha256sum "$1" | cut -d ' ' -f 1; }

if [ -f "$target" ]; then
  [ "$(checksum_of "$target")" = "$checksum" ] && exit 0
  echo "$target has another checksum than expected; writing it again" >&2
fi
command -v bible >/dev/null || {
  echo "the program bible is not installed: apt-get install bible-kjv" >&2
  exit 1
}
mkdir -p "$(dirname "$target")"
# Each line starts with the reference of the verse, "Ge1:1 ".
bible -f gen1:1-rev22:21 | sed 's/^[A-Za-z0-9]*:[0-9]* //' >"$target.part"
found=$(checksum_of "$target.part")
if [ "$found" != "$checksum" ]; then
  rm -f "$target.part"
  echo "the text of this package differs from the expected text: sha256 $found, expected $checksum" >&2
  exit 1
fi
mv "$target.part" "$target"
echo "$target: 31102 verses"
