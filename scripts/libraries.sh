# shellcheck shell=bash
# Sourced by scripts that pack the program.

# needed_libraries FILE…: prints the paths of the libraries that the FILEs need, as this machine's loader finds them,
# except glibc's (part of the system) and NVIDIA's (part of the driver and the toolkit, or Python wheels).
needed_libraries() {
  local system='linux-vdso|ld-linux|libc\.so|libm\.so|libdl\.so|librt\.so|libpthread\.so|libresolv\.so'
  local vendor='libcuda|libcublas|libcudnn|libnccl|libnv|libcupti|libcurand|libcufft|libcusolver|libcusparse'
  local file
  for file in "$@"; do
    ldd "$file" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }'
  done | grep -Ev "/($system|$vendor)" | sort -u
}
