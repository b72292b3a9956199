#!/usr/bin/env bash
# scripts/get_dataset.sh without a network: a wrong checksum, a missing file, and what is kept. The right files cannot
# be had here, so the table of checksums is replaced by one of a small file.
set -euo pipefail
command -v curl >/dev/null || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/scripts" "$work/mirror"
printf 'forty-two images' >"$work/mirror/cifar-10-binary.tar.gz"
sum=$(md5sum "$work/mirror/cifar-10-binary.tar.gz" | cut -d ' ' -f 1)
sed "s/c32a1d4ab5d03f1284b67883e8d87530/$sum/" "$SOURCE_DIR/scripts/get_dataset.sh" >"$work/scripts/get_dataset.sh"
export DATASET_MIRROR="file://$work/mirror"

fail() {
  echo "FAIL: $1" >&2
  exit 1
}
said() {
  grep -q -- "$1" "$work/log" || { cat "$work/log"; fail "no word of '$1'"; }
}
get() { bash "$work/scripts/get_dataset.sh" "$@" >"$work/log" 2>&1; }

get cifar10 "$work/data" || { cat "$work/log"; fail "a right file is refused"; }
cmp "$work/mirror/cifar-10-binary.tar.gz" "$work/data/cifar-10-binary.tar.gz"
[ ! -e "$work/data/cifar-10-binary.tar.gz.part" ] || fail "a part is left"

# Valid files that exist are not downloaded again.
DATASET_MIRROR=file:///nowhere get cifar10 "$work/data" || fail "a file that is there is downloaded"
said complete

# A damaged file is replaced.
echo damaged >"$work/data/cifar-10-binary.tar.gz"
get cifar10 "$work/data" || fail "a damaged file is not replaced"
said 'another checksum'
cmp "$work/mirror/cifar-10-binary.tar.gz" "$work/data/cifar-10-binary.tar.gz"

# Wrong bytes and missing files end in an error, with nothing left behind.
echo 'other bytes' >"$work/mirror/cifar-100-binary.tar.gz"
! get cifar100 "$work/other" || fail "wrong bytes are accepted"
said 'expected 03b5dce01913d631647c71ecec9e9cb8'
! get mnist "$work/other" || fail "a missing file is accepted"
said 'train-images-idx3-ubyte.gz could not be downloaded'
[ -z "$(ls -A "$work/other")" ] || fail "something is left behind"
code=0
(cd "$work/scripts" && bash get_dataset.sh imagenet) >"$work/log" 2>&1 || code=$?
[ "$code" = 2 ] || fail "an unknown name gives exit code $code"
said 'mnist|fashion_mnist'

# Without a published checksum the first download is trusted, which is reported, and its checksum is saved.
printf 'many tokens' >"$work/mirror/fineweb_train_000001.bin"
printf 'some tokens' >"$work/mirror/fineweb_val_000000.bin"
get fineweb "$work/web" || { cat "$work/log"; fail "a first download is refused"; }
said 'no checksum to compare with'
get fineweb "$work/web" || fail "what was remembered is refused"
! grep -q 'Getting' "$work/log" || fail "a file that is there is downloaded"
printf 'other tokens' >"$work/mirror/fineweb_train_000001.bin"
rm "$work/web/fineweb_train_000001.bin"
! get fineweb "$work/web" || fail "other bytes than the first ones are accepted"
said 'expected'
