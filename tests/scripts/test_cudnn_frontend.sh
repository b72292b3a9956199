#!/usr/bin/env bash
# A build of the CUDA engine without cuDNN's attention must be asked for, and is not packed.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed() {
  echo "$1" >&2
  cat "$work/out" >&2
  exit 1
}

# The repository without the downloaded headers.
mkdir "$work/source"
ln -s "$SOURCE_DIR"/* "$work/source/"
rm "$work/source/scripts"
cp -r "$SOURCE_DIR/scripts" "$work/source/scripts"

# An engine that says so is not packed.
mkdir "$work/build"
touch "$work/build/dltrain" "$work/build/gpu_check"
echo "this build has no cuDNN attention: ..." >"$work/build/libdltrain_cuda.so"
if "$work/source/scripts/bundle.sh" "$work/build" "$work/bundle.tar.gz" >"$work/out" 2>&1 ||
  ! grep -q "run scripts/cudnn_frontend.sh and build again" "$work/out"; then
  failed "an engine without cuDNN's attention is packed"
fi

# A download that fails names the option; where no GPU engine is built nothing is downloaded.
mkdir "$work/bin"
printf '#!/bin/sh\ncase "$*" in *download*) exit 1 ;; esac\n' >"$work/bin/python3"
chmod +x "$work/bin/python3"
if PATH="$work/bin:$PATH" CUDACXX=nvcc "$work/source/scripts/cudnn_frontend.sh" --if-cuda >"$work/out" 2>&1 ||
  ! grep -q "only with -DDLTRAIN_CUDNN_ATTENTION=OFF" "$work/out"; then
  failed "a failed download does not name the option"
fi

if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
  PATH="$work/bin:$PATH" "$work/source/scripts/cudnn_frontend.sh" --if-cuda
  echo "no build is configured: there is no nvcc"
  exit 77
fi
configure() {
  cmake -G Ninja -S "$work/source" -B "$work/configured" -DDLTRAIN_BUILD_TESTS=OFF "$@" >"$work/out" 2>&1
}
if configure -DDLTRAIN_CUDA=AUTO; then
  grep -q "Building without the CUDA engine" "$work/out" && exit 77 # cuBLASLt or cuDNN is missing
  failed "an engine without cuDNN's attention is configured unasked"
fi
grep -q "^ *scripts/cudnn_frontend.sh$" "$work/out" || failed "the message does not name the command"
grep -q "DLTRAIN_CUDNN_ATTENTION=OFF" "$work/out" || failed "the message does not name the option"
configure -DDLTRAIN_CUDA=ON -DDLTRAIN_CUDNN_ATTENTION=OFF || failed "the option does not help"
