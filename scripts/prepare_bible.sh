#!/usr/bin/env bash
# Puts the King James Bible at data/bible.txt: 31,102 verses, a line each, 4.2 MB of English text. It is taken out of
# the distribution's package bible-kjv, so it needs no network where that is installed (apt-get install bible-kjv).
# Does nothing when the file is there and its checksum is right.
#
#   scripts/prepare_bible.sh [FILE]
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-data/bible.txt}
checksum=b5c4940bcfeee072c0935b5200d0f9d88a00a0199cb0961d16133458fcdfae5d

checksum_of() { sha256sum "$1" | cut -d ' ' -f 1; }

if [ -f "$target" ]; then
  [ "$(checksum_of "$target")" = "$checksum" ] && exit 0
  echo "$target has another checksum than expected; making it anew" >&2
fi
command -v bible >/dev/null || {
  echo "the program bible is needed: apt-get install bible-kjv" >&2
  exit 1
}
mkdir -p "$(dirname "$target")"
# Each line begins with the verse's place, "Ge1:1 ".
bible -f gen1:1-rev22:21 | sed 's/^[A-Za-z0-9]*:[0-9]* //' >"$target.part"
found=$(checksum_of "$target.part")
if [ "$found" != "$checksum" ]; then
  rm -f "$target.part"
  echo "this package's text differs from the expected: sha256 $found, expected $checksum" >&2
  exit 1
fi
mv "$target.part" "$target"
echo "$target: 31102 verses"
