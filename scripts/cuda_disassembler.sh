#!/usr/bin/env bash
# Puts NVIDIA's cuobjdump and nvdisasm, with which the tests look at the machine code of the CUDA
# kernels, into .deps/cuda-disassembler, from the PyPI packages. Does nothing if they already exist.
set -euo pipefail
cd "$(dirname "$0")/.."

version=13.5.37
target=.deps/cuda-disassembler

[ "$(cat "$target/version" 2>/dev/null || true)" = "$version" ] && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=scripts/pip.sh
. scripts/pip.sh
need_pip "$work" cuobjdump
cat >"$work/packages" <<PACKAGES
nvidia-cuda-cuobjdump==$version --hash=sha256:38780fee50863252a0b8926357faa91615ca1c8346490563f33a06100cd73f58
nvidia-cuda-nvdisasm==$version --hash=sha256:d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca
PACKAGES
if ! python3 -m pip install --quiet --no-deps --only-binary :all: --require-hashes --target "$work/packages.d" \
  --requirement "$work/packages"; then
  echo "cuobjdump and nvdisasm $version could not be installed: tests of machine code are skipped" >&2
  exit 1
fi
mkdir -p "$target/bin"
install -m 755 "$work"/packages.d/nvidia/cu13/bin/* "$target/bin"
echo "$version" >"$target/version"
