#!/usr/bin/env bash
# Downloads a public dataset for the recipes of configs/recipes and verifies its checksums.
#
#   scripts/get_dataset.sh mnist|fashion_mnist|cifar10|cifar100|tinyshakespeare|enwik8|fineweb [FOLDER]     (default: data/NAME)
#
# Existing files with the right checksum are kept. Archives that dltrain can read directly are not unpacked. The
# checksums are those published by the authors (and torchvision). DATASET_MIRROR=URL selects another source; a local
# folder is file:///path.
#
# fineweb: two files of 100 million GPT-2 tokens of the FineWeb sample of 10 billion, in the layout of llm.c, for
# `data: {type: tokens}`. There are no independent checksums of these files, so the first download is trusted:
# its sha256 is printed and saved in FOLDER/SHA256SUMS, and later downloads are compared with it.
set -euo pipefail
self=$(realpath "$0")
cd "$(dirname "$0")/.."

usage() {
  sed -n '4s/^# *//p' "$self" >&2
  exit 2
}

name=${1:-}
case $name in
  mnist)
    mirrors="https://ossci-datasets.s3.amazonaws.com/mnist http://yann.lecun.com/exdb/mnist"
    files="train-images-idx3-ubyte.gz:f68b3c2dcbeaaa9fbdd348bbdeb94873
           train-labels-idx1-ubyte.gz:d53e105ee54ea40749a09fcbcd1e9432
           t10k-images-idx3-ubyte.gz:9fb629c4189551a2d022fa330f9573f3
           t10k-labels-idx1-ubyte.gz:ec29112dd5afa0611ce80d1b7f02629c" ;;
  fashion_mnist)
    mirrors="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
    files="train-images-idx3-ubyte.gz:8d4fb7e6c68d591d4c3dfef9ec88bf0d
           train-labels-idx1-ubyte.gz:25c81989df183df01b3e8a0aad5dffbe
           t10k-images-idx3-ubyte.gz:bef4ecab320f06d8554ea6380940ec79
           t10k-labels-idx1-ubyte.gz:bb300cfdad3c16e7a12a480ee83cd310" ;;
  cifar10)
    mirrors="https://www.cs.toronto.edu/~kriz"
    files="cifar-10-binary.tar.gz:c32a1d4ab5d03f1284b67883e8d87530" ;;
  cifar100)
    mirrors="https://www.cs.toronto.edu/~kriz"
    files="cifar-100-binary.tar.gz:03b5dce01913d631647c71ecec9e9cb8" ;;
  tinyshakespeare)
    mirrors="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare"
    files="input.txt:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed" ;;
  enwik8)
    mirrors="https://mattmahoney.net/dc http://mattmahoney.net/dc"
    files="enwik8.zip:547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc" ;;
  fineweb)
    mirrors="https://huggingface.co/datasets/kjj0/fineweb10B-gpt2/resolve/main"
    files="fineweb_train_000001.bin:first fineweb_val_000000.bin:first" ;;
  *) usage ;;
esac
[ $# -le 2 ] || usage
folder=${2:-data/$name}
mirrors=${DATASET_MIRROR:-$mirrors}

command -v curl >/dev/null || {
  echo "curl is needed to download: apt-get install curl" >&2
  exit 1
}

# checksum_of FILE EXPECTED: prints the md5 or sha256 of FILE, whichever has the length of EXPECTED.
checksum_of() {
  if [ ${#2} = 32 ]; then md5sum "$1"; else sha256sum "$1"; fi | cut -d ' ' -f 1
}

# Prints the checksum of an earlier download of FILE, or "first" if there was none.
remembered() {
  local known=
  [ ! -f "$folder/SHA256SUMS" ] || known=$(awk -v file="$1" '$2 == file { print $1 }' "$folder/SHA256SUMS" | head -n 1)
  echo "${known:-first}"
}

# get FILE CHECKSUM: downloads FILE from the first mirror whose copy has that checksum.
get() {
  local target=$folder/$1 mirror found
  if [ -f "$target" ] && [ "$2" != first ]; then
    [ "$(checksum_of "$target" "$2")" = "$2" ] && return 0
    echo "$target has another checksum than expected; downloading it again" >&2
  fi
  for mirror in $mirrors; do
    echo "Getting $mirror/$1 ..."
    if ! curl --fail --silent --show-error --location --connect-timeout 20 --retry 2 --output "$target.part" "$mirror/$1"; then
      rm -f "$target.part"
      continue
    fi
    found=$(checksum_of "$target.part" "$2")
    if [ "$2" = first ]; then
      echo "$1: sha256 $found, no checksum to compare with; saved in $folder/SHA256SUMS for later downloads"
      echo "$found  $1" >>"$folder/SHA256SUMS"
    fi
    if [ "$found" = "$2" ] || [ "$2" = first ]; then
      mv "$target.part" "$target"
      return 0
    fi
    echo "$mirror/$1 has the checksum $found, expected $2" >&2
    rm -f "$target.part"
  done
  echo "$1 could not be downloaded; check the network, or put the file at $target (checksum $2)" >&2
  return 1
}

mkdir -p "$folder"
for entry in $files; do
  checksum=${entry##*:}
  [ "$checksum" != first ] || checksum=$(remembered "${entry%%:*}")
  get "${entry%%:*}" "$checksum"
done

# The md5 is the author's, of the unpacked file.
if [ "$name" = enwik8 ] && { [ ! -f "$folder/enwik8" ] || ! echo "a1fa5ffddb56f4953e226637dabbb36a  $folder/enwik8" | md5sum --check --status; }; then
  command -v unzip >/dev/null || {
    echo "unzip is needed: apt-get install unzip" >&2
    exit 1
  }
  unzip -p "$folder/enwik8.zip" enwik8 >"$folder/enwik8.part"
  echo "a1fa5ffddb56f4953e226637dabbb36a  $folder/enwik8.part" | md5sum --check --status || {
    rm -f "$folder/enwik8.part"
    echo "the text in enwik8.zip does not have the expected checksum" >&2
    exit 1
  }
  mv "$folder/enwik8.part" "$folder/enwik8"
fi
echo "$folder: complete"
