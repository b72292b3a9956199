#!/usr/bin/env bash
# Puts the headers of NVIDIA's cudnn-frontend, which the CUDA engine uses for cuDNN's fused
# attention, into .deps/cudnn-frontend, where CMake searches them, and their licences. They are extracted from the PyPI package,
# which is downloaded but neither installed nor run. Does nothing if they already exist.
#
#   scripts/cudnn_frontend.sh [--if-cuda]      --if-cuda: nothing either where CMake would find no nvcc
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = --if-cuda ] && [ -z "${CUDACXX:-}" ] && ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
  exit 0
fi

version=1.32.0
checksum=c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0
target=.deps/cudnn-frontend

[ -d "$target/licenses" ] && [ "$(cat "$target/version" 2>/dev/null || true)" = "$version" ] && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=scripts/pip.sh
. scripts/pip.sh
need_pip "$work" cudnn-frontend
# Only the headers are needed, so the wheel is the same for every version of Python.
if ! python3 -m pip download --quiet --no-deps --only-binary :all: --python-version 3.11 --platform manylinux_2_28_x86_64 \
  --dest "$work" "nvidia-cudnn-frontend==$version"; then
  echo "nvidia-cudnn-frontend $version could not be downloaded. The CUDA engine is built without it, and much slower on language models, only with -DDLTRAIN_CUDNN_ATTENTION=OFF" >&2
  exit 1
fi
wheel=$(echo "$work"/nvidia_cudnn_frontend-*.whl)
if [ "$(sha256sum "$wheel" | cut -d ' ' -f 1)" != "$checksum" ]; then
  echo "$(basename "$wheel") does not have the expected checksum" >&2
  exit 1
fi
mkdir -p "$target"
python3 - "$wheel" "$target" <<'PYTHON'
import pathlib, sys, zipfile
target = pathlib.Path(sys.argv[2])
with zipfile.ZipFile(sys.argv[1]) as archive:
    archive.extractall(target, [name for name in archive.namelist() if name.startswith("include/")])
    (target / "licenses").mkdir(exist_ok=True)  # scripts/package.sh packs them
    for name in archive.namelist():
        if ".dist-info/licenses/" in name and not name.endswith("/"):
            (target / "licenses" / pathlib.PurePath(name).name).write_bytes(archive.read(name))
PYTHON
echo "$version" >"$target/version"
