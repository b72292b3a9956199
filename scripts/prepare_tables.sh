#!/usr/bin/env bash
# Writes three tables of the scikit-learn package to data/, each with a header and the target in the last column:
#
#   breast-cancer.csv   569 rows of 30 numbers, and the diagnosis: malignant or benign
#   wine.csv            178 rows of 13 numbers, and the cultivar: class_0, class_1 or class_2
#   diabetes.csv        442 rows of 10 numbers, and the progression of the disease as a number
#
# Does nothing, and needs no network, if the files exist and their checksums are right.
#
#   scripts/prepare_tables.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-data}

is_there() {
  (cd "$folder" 2>/dev/null && sha256sum --check --status - <<SUMS
bbe6bc506fec05b65edfb905b871a229bdc97341f512e7548a9ecc6081644251  breast-cancer.csv
bafc97afa2272002ba7475929632cf1425754f8055d1be1b3b11bd63d110d866  wine.csv
36e3fd6f8158bdc41f916d8989653227e5a5dd506c508de3f33febb48213e641  diabetes.csv
SUMS
  )
}
is_there 2>/dev/null && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "Downloading breast cancer, wine and diabetes from the scikit-learn package ..."
scripts/scikit_learn_data.sh "$work"
mkdir -p "$folder"
python3 - "$work" "$folder" <<'PYTHON'
import csv, gzip, sys
from pathlib import Path
work, folder = map(Path, sys.argv[1:])
cells = ("radius texture perimeter area smoothness compactness concavity concave_points symmetry "
         "fractal_dimension").split()
tables = {
    "breast-cancer": [f"{kind}_{cell}" for kind in ("mean", "error", "worst") for cell in cells] + ["diagnosis"],
    "wine": ("alcohol malic_acid ash alcalinity_of_ash magnesium total_phenols flavanoids nonflavanoid_phenols "
             "proanthocyanins color_intensity hue od280_od315 proline cultivar").split(),
    "diabetes": "age sex bmi bp s1 s2 s3 s4 s5 s6 progression".split(),
}
for name, columns in tables.items():
    if name == "diabetes":
        with gzip.open(work / "diabetes_data_raw.csv.gz", "rt") as data, gzip.open(work / "diabetes_target.csv.gz", "rt") as target:
            rows = [x.split() + [f"{float(y):g}"] for x, y in zip(data, target, strict=True)]
    else:
        with open(work / {"wine": "wine_data.csv", "breast-cancer": "breast_cancer.csv"}[name], newline="") as file:
            (_, _, *classes), *rows = csv.reader(file)
        rows = [row[:-1] + [classes[int(row[-1])]] for row in rows]
    with open(folder / f"{name}.csv", "w", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([columns, *rows])
PYTHON
is_there || {
  echo "the tables in this scikit-learn package differ from the expected data" >&2
  exit 1
}
echo "$folder: breast-cancer.csv, wine.csv, diabetes.csv"
