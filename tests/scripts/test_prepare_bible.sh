#!/usr/bin/env bash
# scripts/prepare_bible.sh: without the package, with one of another text, and what is kept.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "test_prepare_bible: $1" >&2
  cat "$work/out" >&2
  exit 1
}
expect() { # expect CODE MESSAGE: of preparing $work/bible.txt
  local code=0
  "$SOURCE_DIR/scripts/prepare_bible.sh" "$work/bible.txt" >"$work/out" 2>&1 || code=$?
  [ "$code" = "$1" ] || fail "exit code $code, expected $1"
  [ -z "$2" ] || grep -q "$2" "$work/out" || fail "no message '$2'"
}

# The real one, where the package is installed.
if command -v bible >/dev/null; then
  expect 0 "31102 verses"
  [ "$(wc -l <"$work/bible.txt")" = 31102 ] || fail "not 31102 lines"
  grep -q '^In the beginning God created the heaven and the earth.$' "$work/bible.txt" || fail "no first verse"
  expect 0 ""
  [ ! -s "$work/out" ] || fail "a right file was made anew"
  rm "$work/bible.txt"
fi

mkdir "$work/bin"
cat >"$work/bin/bible" <<'FAKE'
#!/usr/bin/env bash
echo "Ge1:1 another text"
FAKE
chmod +x "$work/bin/bible"
echo broken >"$work/bible.txt"
PATH="$work/bin:$PATH" expect 1 "differs from the expected"
[ "$(cat "$work/bible.txt")" = broken ] || fail "another text was kept"
[ ! -e "$work/bible.txt.part" ] || fail "a part is left"
