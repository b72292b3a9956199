#!/usr/bin/env bash
# Extracts the files of sklearn/datasets/data from the scikit-learn package into a folder. The package is
# downloaded but neither installed nor run.
#
#   scripts/scikit_learn_data.sh FOLDER
set -euo pipefail
folder=$1

# shellcheck source=scripts/pip.sh
. "$(dirname "$0")/pip.sh"
need_pip "$folder" "the scikit-learn package"
if ! python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$folder" scikit-learn; then
  echo "the scikit-learn package could not be downloaded; check the network" >&2
  exit 1
fi
python3 - "$folder" <<'PYTHON'
import glob, os, sys, zipfile
folder = sys.argv[1]
with zipfile.ZipFile(glob.glob(folder + "/scikit_learn-*.whl")[0]) as archive:
    for name in archive.namelist():
        if name.startswith("sklearn/datasets/data/") and name.endswith((".csv", ".gz")):
            with open(os.path.join(folder, os.path.basename(name)), "wb") as out:
                out.write(archive.read(name))
PYTHON
