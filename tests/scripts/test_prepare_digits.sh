#!/usr/bin/env bash
# scripts/prepare_digits.sh without a network: a right file is kept, a wrong one is not believed, and
# neither a failed download nor another content leaves a file behind.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "test_prepare_digits: $1" >&2
  cat "$work/out" >&2
  exit 1
}
expect() { # expect CODE MESSAGE: of preparing $work/digits.csv.gz
  local code=0
  "$SOURCE_DIR/scripts/prepare_digits.sh" "$work/digits.csv.gz" >"$work/out" 2>&1 || code=$?
  [ "$code" = "$1" ] || fail "exit code $code, expected $1"
  [ -z "$2" ] || grep -q "$2" "$work/out" || fail "no message '$2'"
}

# A python3 whose pip delivers what $WHEEL says: nothing, or a package with other digits.
real=$(command -v python3)
mkdir "$work/bin"
cat >"$work/bin/python3" <<FAKE
#!/usr/bin/env bash
if [ "\$1 \$2 \$3" = "-m pip download" ]; then
  [ "\$WHEEL" = none ] && exit 1
  while [ "\$1" != --dest ]; do shift; done
  exec $real -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1], "w").writestr("sklearn/datasets/data/digits.csv.gz", "other")' "\$2/scikit_learn-9-any.whl"
fi
exec $real "\$@"
FAKE
chmod +x "$work/bin/python3"
export PATH="$work/bin:$PATH"

export WHEEL=none
expect 1 "could not be downloaded"
[ ! -e "$work/digits.csv.gz" ] || fail "a failed download left a file"
export WHEEL=other
expect 1 "differ from the expected"
[ ! -e "$work/digits.csv.gz" ] || fail "other digits were kept"
echo broken >"$work/digits.csv.gz"
expect 1 "another checksum"

# The real one, where scripts/test.sh has put it: accepted without pip.
[ -f "$SOURCE_DIR/data/digits.csv.gz" ] || fail "data/digits.csv.gz is missing: run scripts/prepare_digits.sh"
cp "$SOURCE_DIR/data/digits.csv.gz" "$work/digits.csv.gz"
export WHEEL=none
expect 0 ""
