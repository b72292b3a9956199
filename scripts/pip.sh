# shellcheck shell=bash
# Sourced by scripts that take a package from PyPI.

# need_pip FOLDER PACKAGE: makes `python3 -m pip` work, in a virtual environment in FOLDER where Python has no pip.
# Fails with a message that names PACKAGE.
need_pip() {
  python3 -m pip --version >/dev/null 2>&1 && return
  python3 -m venv "$1/venv" || {
    echo "pip is needed to get $2: apt-get install python3-pip" >&2
    return 1
  }
  PATH="$1/venv/bin:$PATH"
}
