#!/usr/bin/env bash
# scripts/package.sh: the .tar.gz and the wheel run in a root that has only glibc, a shell and the package; the wheel
# also after pip in a fresh environment, where the CUDA engine finds NVIDIA's libraries among Python's packages.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset LD_LIBRARY_PATH
failed() {
  echo "test_package: $1" >&2
  [ ! -f "$work/out" ] || cat "$work/out" >&2
  exit 1
}

"$SOURCE_DIR/scripts/package.sh" "$BUILD_DIR" "$work/packages"
archive=$(echo "$work"/packages/*.tar.gz)
wheel=$(echo "$work"/packages/*.whl)

# What runs in a root: a recipe of the package, on a table of the digits' form.
awk 'BEGIN { for (row = 0; row < 1797; ++row) { for (i = 0; i < 64; ++i) printf "%d,", (i * row + i) % 17; print row % 10 } }' |
  gzip >"$work/digits.csv.gz"
cat >"$work/try.sh" <<'TRY'
set -e
recipe=$1/share/dltrain/configs/recipes/digits-mlp.yaml
PATH=$1/bin
dltrain version
dltrain plan "$recipe"
dltrain --config "$recipe" --max-steps 20 -s evaluation.eval_steps=20
TRY

# The libraries that an installed program would load are its own or glibc's.
own_libraries() { # own_libraries PREFIX
  local libraries foreign
  libraries=$(ldd "$1/bin/dltrain")
  [[ $libraries == *libstdc++* ]] || failed "ldd does not show the program's libraries"
  foreign=$(grep -Ev "=> $1/bin/\.\./lib/dltrain/|linux-vdso|ld-linux|lib(c|m|dl|rt|pthread)\.so" <<<"$libraries" || true)
  [ -z "$foreign" ] || failed "the program in $1 loads $foreign"
}

namespaces=(unshare --map-root-user --mount --pid --fork --mount-proc)
try_alone() { # try_alone ROOT PREFIX: of a package that lies in ROOT at PREFIX
  own_libraries "$1$2"
  local file
  for file in $(ldd /bin/sh "$DLTRAIN" | grep -Eo '/[^ ]*/(ld-linux|lib(c|m|dl|rt|pthread)\.so)[^ ]*' | sort -u) /bin/sh; do
    mkdir -p "$1$(dirname "$file")"
    cp -L "$file" "$1$file"
  done
  mkdir -p "$1/proc" "$1/home/data" # the loader takes $ORIGIN from /proc
  cp "$work/digits.csv.gz" "$1/home/data/"
  cp "$work/try.sh" "$1/"
  if ! "${namespaces[@]}" true 2>/dev/null; then
    echo "not tried in a root of its own: this machine permits no namespaces"
    skipped=77
    return
  fi
  "${namespaces[@]}" --root="$1" --wd=/home /bin/sh /try.sh "$2" >"$work/out" 2>&1 ||
    failed "the package in $2 of a bare root fails"
  grep -q "^step 20: evaluation on 360 samples" "$work/out" || failed "no evaluation in a bare root"
  [ -f "$1/home/runs/digits-mlp/summary.json" ] || failed "no summary in a bare root"
}

mkdir -p "$work/unpacked/opt"
tar -C "$work/unpacked/opt" -xf "$archive"
try_alone "$work/unpacked" "/opt/$(ls "$work/unpacked/opt")"
grep -q "GCC RUNTIME LIBRARY EXCEPTION" "$work"/unpacked/opt/*/share/doc/dltrain/licenses/libstdc++6 || failed "no licence of libstdc++"

# pip in a fresh environment; the folder and all that it needs of it then move to a root without Python.
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel" || failed "pip does not install the wheel"
"$work/venv/bin/dltrain" version >"$work/out" || failed "the program does not run after pip"
version=$("$DLTRAIN" version)
version=${version%%$'\n'*}
grep -qxF "$version" "$work/out" || failed "the wheel has another version"
if [ -f "$BUILD_DIR/libdltrain_cuda.so" ]; then
  packages=$(echo "$work"/venv/lib/python3*/site-packages)
  grep -q '^Requires-Dist: nvidia-cudnn-cu[0-9]*>=.*; extra == "cuda"$' "$packages"/dltrain-*.dist-info/METADATA ||
    failed "the wheel has no extra \"cuda\""
  # The toolkit's libraries where NVIDIA's wheels would have them.
  needed=$(ldd "$BUILD_DIR/libdltrain_cuda.so")
  toolkit=$packages/nvidia/cu$(sed -n 's/.*libcudart\.so\.\([0-9]*\) .*/\1/p' <<<"$needed")/lib
  mkdir -p "$toolkit" "$packages/nvidia/cudnn/lib"
  awk '$1 ~ /^lib(cudart|cublasLt|nvrtc)\./ { print $3 }' <<<"$needed" | xargs ln -s -t "$toolkit"
  awk '$1 ~ /^libcudnn\./ { print $3 }' <<<"$needed" | xargs ln -s -t "$packages/nvidia/cudnn/lib"
  LD_DEBUG=libs "$work/venv/bin/dltrain" version >"$work/out" 2>&1 || failed "the CUDA engine of the wheel is not found"
  grep -q "^cuda: .*cuDNN" "$work/out" || failed "the CUDA engine of the wheel is not opened"
  for library in libcudart libcublasLt libnvrtc libcudnn; do
    grep -q "calling init: .*/site-packages/.*/nvidia/.*/$library\." "$work/out" || failed "$library comes from elsewhere"
  done
fi
mkdir -p "$work/installed/usr/bin"
cp "$work/venv/bin/dltrain" "$work/installed/usr/bin/"
mkdir "$work/installed/usr/lib"
cp -r "$work/venv/lib/dltrain" "$work/installed/usr/lib/"
cp -r "$work/venv/share" "$work/installed/usr/"
try_alone "$work/installed" /usr
[ -z "${skipped:-}" ] || exit "$skipped"
echo "packages of $version run alone"
