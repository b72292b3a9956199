#!/usr/bin/env bash
# Installs the packages that dltrain needs, on Debian 12, Ubuntu 24.04 and newer.
#
#   scripts/install_dependencies.sh [build|test|full] [--list]
#
# build: compiler, CMake and libraries (the default). test: also the tools of scripts/test.sh.
# full: also the tools of scripts/test.sh --full. Does nothing, and needs no root rights, if nothing is
# missing. --list only prints the missing packages. docs/dependencies.md lists the purpose of each. Where CUDA's
# compiler is installed it also fetches the headers of cudnn-frontend (scripts/cudnn_frontend.sh).
set -euo pipefail
cd "$(dirname "$0")/.."

level=build
list_only=no
for argument in "$@"; do
  case "$argument" in
    build | test | full) level=$argument ;;
    --list) list_only=yes ;;
    *)
      echo "usage: $0 [build|test|full] [--list]" >&2
      exit 2
      ;;
  esac
done

# Programs are searched by name, so another installation of them also counts: program:package.
tools="g++:g++ cmake:cmake ninja:ninja-build ccache:ccache git:git python3:python3"
libraries="libc6-dev libfmt-dev libspdlog-dev libyaml-cpp-dev libcli11-dev nlohmann-json3-dev
  libdnnl-dev ocl-icd-opencl-dev libhwy-dev libeigen3-dev zlib1g-dev libturbojpeg0-dev libspng-dev
  libxxhash-dev libpcre2-dev libutf8proc-dev libsentencepiece-dev libjs-chart.js"
if [ "$level" != build ]; then
  libraries="$libraries catch2 python3-wheel python3-venv"
  tools="$tools clang-format-14:clang-format-14 shellcheck:shellcheck mpirun:openmpi-bin"
  # Ubuntu has it as a snap only.
  if apt-cache policy chromium 2>/dev/null | grep -q "Candidate: [0-9]"; then tools="$tools chromium:chromium"; fi
fi
if [ "$level" = full ]; then
  tools="$tools clang++:clang"
  libraries="$libraries libclang-rt-dev"
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "This system is neither Debian nor Ubuntu, so nothing was installed. dltrain needs these packages (Debian names): ${libraries//$'\n'/}" >&2
  exit 0
fi

missing=""
for entry in $tools; do
  command -v "${entry%%:*}" >/dev/null || missing="$missing ${entry##*:}"
done
for package in $libraries; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing="$missing $package"
done
# prepare_digits.sh needs pip, or venv to create an environment with pip.
if ! python3 -m pip --version >/dev/null 2>&1 && ! python3 -c 'import ensurepip' 2>/dev/null; then
  missing="$missing python3-pip"
fi
if [ "$level" != build ] && ! python3 -c 'import yaml' 2>/dev/null; then
  missing="$missing python3-yaml"
fi

if [ "$list_only" = yes ]; then
  echo "${missing# }"
  exit 0
fi
# Not fatal: a build without the CUDA engine does not need them, and CMake says what the others need.
fetch_headers() { scripts/cudnn_frontend.sh --if-cuda || true; }
if [ -z "$missing" ]; then
  fetch_headers
  exit 0
fi

as_root=""
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "dltrain needs packages that are not installed; as root, run: apt-get install$missing" >&2
    exit 1
  fi
  as_root=sudo
fi
echo "Installing:$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq || echo "apt-get update failed; continuing with the existing package lists" >&2
# shellcheck disable=SC2086  # a list of names
if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
fetch_headers
