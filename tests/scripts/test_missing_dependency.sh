#!/usr/bin/env bash
# A configure run without a library names it and its package: with every library hidden, all at once.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

hidden="fmt:libfmt-dev spdlog:libspdlog-dev yaml-cpp:libyaml-cpp-dev CLI11:libcli11-dev
  nlohmann_json:nlohmann-json3-dev dnnl:libdnnl-dev hwy:libhwy-dev ZLIB:zlib1g-dev
  Catch2:catch2 OpenMP:libgomp1"
# OpenCL is only a condition of oneDNN's package: hidden alone, it is named as well.
if cmake -G Ninja -S "$SOURCE_DIR" -B "$work/opencl" -DDLTRAIN_CUDA=OFF -DCMAKE_DISABLE_FIND_PACKAGE_OpenCL=ON >"$work/out" 2>&1 ||
  ! grep -q "OpenCL is missing: package ocl-icd-opencl-dev" "$work/out"; then
  echo "a missing OpenCL is not named" >&2
  cat "$work/out" >&2
  exit 1
fi
arguments=()
for entry in $hidden; do arguments+=("-DCMAKE_DISABLE_FIND_PACKAGE_${entry%%:*}=ON"); done

if cmake -G Ninja -S "$SOURCE_DIR" -B "$work/build" -DDLTRAIN_CUDA=OFF "${arguments[@]}" >"$work/out" 2>&1; then
  echo "configuring succeeded without any library" >&2
  exit 1
fi
for entry in $hidden; do
  if ! grep -q "${entry%%:*} is missing: package ${entry##*:}" "$work/out"; then
    echo "the message does not name ${entry##*:} for ${entry%%:*}:" >&2
    cat "$work/out" >&2
    exit 1
  fi
done
# Every library that CMake asks for is also one that the script installs.
sed -n 's/^ *dltrain_require(\([^ ]*\) \([^ )]*\).*/\2/p' "$SOURCE_DIR/cmake/dependencies.cmake" |
  while read -r package; do
    [ "$package" = libgomp1 ] && continue # comes with g++
    grep -q "\b$package\b" "$SOURCE_DIR/scripts/install_dependencies.sh" || {
      echo "scripts/install_dependencies.sh does not install $package" >&2
      exit 1
    }
  done
