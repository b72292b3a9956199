#!/usr/bin/env bash
# Packs the program of a finished build for machines without our libraries: a Python wheel and a .tar.gz that runs
# where it is unpacked. Both hold the program, the shared libraries that it needs except glibc's and NVIDIA's,
# the CUDA engine if the build has one, configs/ and the licences.
#
#   scripts/package.sh [BUILD_FOLDER [OUTPUT_FOLDER]]     default: build, BUILD_FOLDER/package
#
# The packages run on every glibc from the version in their names on: the newest that a packed file asks for. Needs
# python3-wheel and dpkg, which knows the package, and so the licence, of a library.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:-build}
output=${2:-$build/package}
if [ ! -x "$build/dltrain" ]; then
  echo "$build/dltrain does not exist; build it with: cmake --preset release && cmake --build --preset release" >&2
  exit 1
fi
if ! /usr/bin/python3 -m wheel version >/dev/null 2>&1; then
  echo "python3-wheel is not installed; run scripts/install_dependencies.sh test" >&2
  exit 1
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
built=$("$build/dltrain" version)
version=$(sed -n '1s/^dltrain \([^ ]*\).*/\1/p' <<<"$built")
name=dltrain-$version
root=$stage/$name
DESTDIR=$stage cmake --install "$build" --prefix "/$name" --strip >/dev/null
engine=$root/lib/libdltrain_cuda.so
files=("$root/bin/dltrain")
[ ! -f "$engine" ] || files+=("$engine")

# shellcheck source=scripts/libraries.sh
. scripts/libraries.sh
mkdir -p "$root/lib/dltrain"
licenses=$root/share/doc/dltrain/licenses
mkdir -p "$licenses"
license_of() { # license_of PACKAGE: copies the copyright file of a Debian package
  cp "/usr/share/doc/$1/copyright" "$licenses/$1"
}
# The first two are header libraries, xxhash is used as one, and Chart.js is written into the program.
for package in libcli11-dev nlohmann-json3-dev libxxhash-dev libjs-chart.js; do
  license_of "$package"
done
libraries=$(needed_libraries "${files[@]}")
for library in $libraries; do
  cp -L "$library" "$root/lib/dltrain/"
  file=$(readlink -f "$library")
  # Debian's lists name some files by /lib and others by /usr/lib.
  package=$(dpkg-query -S "${file#/usr}" "/usr${file#/usr}" 2>/dev/null | sed -n '1s/:.*//p' || true)
  if [ -z "$package" ]; then
    echo "$library belongs to no Debian package, so its licence is not known" >&2
    exit 1
  fi
  license_of "$package"
done
mkdir "$licenses/common-licenses" # Debian's copyright files refer to these
grep -roh '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$licenses" | sort -u |
  xargs cp -t "$licenses/common-licenses"
attention=$(sed -n 's/^CUDNN_FRONTEND_INCLUDE_DIR:[A-Z]*=\(..*\)$/\1/p' "$build/CMakeCache.txt")
if [ -f "$engine" ] && [ -n "$attention" ]; then
  if [ ! -d "$attention/../licenses" ]; then
    echo "$attention has no licences beside it; run scripts/cudnn_frontend.sh" >&2
    exit 1
  fi
  cp -r "$attention/../licenses" "$licenses/cudnn-frontend"
fi

# What packed files ask of glibc; GLIBC_ABI_DT_RELR, a feature without a number, came with 2.36.
glibc=$(find "$root/bin" "$root/lib" -type f ! -name '*.cmake' -exec readelf -V --wide {} + | sed 's/GLIBC_ABI_DT_RELR/GLIBC_2.36/' |
  grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
glibc=${glibc#GLIBC_}
tag=manylinux_${glibc/./_}_$(uname -m)

# Equal builds give equal packages, so the files have the date of the commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CMakeLists.txt)}
export SOURCE_DATE_EPOCH
mkdir -p "$output"
tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -c "$name" |
  gzip -n >"$output/$name-$tag.tar.gz"

# pip installs scripts/ as bin/ and data/ as the rest of the prefix, so the program finds its libraries from bin/ as in
# the .tar.gz and no Python runs. The engine is among Python's packages, the neighbour of NVIDIA's wheels.
wheel=$stage/wheel
info=$wheel/$name.dist-info
mkdir -p "$wheel/$name.data/data" "$info"
mv "$root/bin" "$wheel/$name.data/scripts"
mv "$licenses" "$info/"
mv "$root/share/doc/dltrain/LICENSE" "$info/licenses/"
if [ -f "$engine" ]; then
  mkdir "$wheel/dltrain"
  mv "$engine" "$wheel/dltrain/"
fi
rm -r "$root/lib/cmake" # plug-ins are built with the .tar.gz, which has the headers
mv "$root/lib" "$root/share" "$wheel/$name.data/data/"
printf '%s\n' "Wheel-Version: 1.0" "Generator: scripts/package.sh" "Root-Is-Purelib: false" "Tag: py3-none-$tag" >"$info/WHEEL"
{
  printf '%s\n' "Metadata-Version: 2.1" "Name: dltrain" "Version: $version" "License: MIT" \
    "Summary: Trains neural networks from one YAML file"
  if [ -d "$wheel/dltrain" ]; then
    # NVIDIA's wheels of the versions that the engine was built with, or newer ones of the same major version.
    of() { sed -n "s/.* $1 \([0-9][0-9.]*\).*/\1/p" <<<"$built"; }
    cuda=$(of CUDA)
    cublas=$(of cuBLASLt)
    cudnn=$(of cuDNN)
    if [ "${cuda%%.*}" -lt 13 ]; then
      echo "the extra \"cuda\" needs CUDA 13 or newer, whose wheels are in one folder; this build has CUDA $cuda" >&2
      exit 1
    fi
    echo "Provides-Extra: cuda"
    needs() { echo "Requires-Dist: $1>=$2,<$((${2%%.*} + 1)); extra == \"cuda\""; }
    for part in cuda-runtime cuda-nvrtc cuda-cupti; do needs "nvidia-$part" "$cuda"; done
    needs nvidia-cublas "$cublas"
    needs "nvidia-cudnn-cu${cuda%%.*}" "$cudnn"
    if [ -n "$(of NCCL)" ]; then needs "nvidia-nccl-cu${cuda%%.*}" 2.18; fi # loaded at run time
  fi
} >"$info/METADATA"
/usr/bin/python3 -m wheel pack "$wheel" --dest-dir "$output" >/dev/null

du -h --apparent-size "$output/$name-$tag.tar.gz" "$output/$name-py3-none-$tag.whl"
