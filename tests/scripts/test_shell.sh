#!/usr/bin/env bash
# Every shell script passes shellcheck, every Python file compiles.
set -euo pipefail
cd "$SOURCE_DIR"
shellcheck .ci/run scripts/*.sh bench/*.sh tests/scripts/*.sh examples/cluster/*.sbatch
python3 - <<'PYTHON'
import glob
for folder in ("scripts", "bench", "examples", "tests"):
    for path in glob.glob(folder + "/**/*.py", recursive=True):
        with open(path, encoding="utf-8") as file:
            compile(file.read(), path, "exec")
PYTHON
