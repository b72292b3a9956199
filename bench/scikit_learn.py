#!/usr/bin/env python3
"""Trains the recipes of three tables with dltrain and scikit-learn's MLP on the same splits, and prints the results of both.

    scripts/prepare_tables.sh
    bench/scikit_learn.py [--python PYTHON] [--record]

Five seeds, each with its own split (data.split_seed). scikit-learn: MLPClassifier and MLPRegressor with their defaults (one
hidden layer of 100, Adam), after a StandardScaler, and up to 1,000 epochs, which the regression needs to converge.
--record writes scikit-learn's results to bench/scikit_learn.json, which tests/apps/test_scikit_learn.py reads.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "bench" / "scikit_learn.json"
TABLES = {"breast-cancer": "accuracy", "wine": "accuracy", "diabetes": "r2"}
SEEDS = range(5)


def run_dltrain(dltrain, table, seed, folder):
    """Returns the metric of a run of the recipe, and the lines of the file that were held out."""
    run = Path(folder) / f"{table}-{seed}"
    subprocess.run([dltrain, "train", f"configs/recipes/{table}-mlp.yaml", "-q", "--seed", str(seed), "-s",
                    f"data.split_seed={seed}", "--output-dir", str(run), "--overwrite"], cwd=ROOT, check=True)
    subprocess.run([dltrain, "predict", str(run), "-o", f"{run}.csv"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    with open(f"{run}.csv", newline="") as file:
        lines = [int(row["source"].rsplit(":", 1)[1]) for row in csv.DictReader(file)]
    return json.loads((run / "summary.json").read_text())[f"eval_{TABLES[table]}"], lines


def scikit_learn(table, seed, held_out):
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    with open(ROOT / "data" / f"{table}.csv", newline="") as file:
        rows = list(csv.reader(file))
    number = TABLES[table] == "r2"
    splits = ([], []), ([], [])
    for line, (*inputs, target) in enumerate(rows[1:], 2):
        x, y = splits[line in held_out]
        x.append([float(value) for value in inputs])
        y.append(float(target) if number else target)
    mlp = (MLPRegressor if number else MLPClassifier)(random_state=seed, max_iter=1000)
    return make_pipeline(StandardScaler(), mlp).fit(*splits[0]).score(*splits[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="a Python with scikit-learn")
    parser.add_argument("--dltrain", default=str(ROOT / "build" / "dltrain"))
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--peer", nargs=2, help=argparse.SUPPRESS)  # runs the scikit-learn side in this process
    arguments = parser.parse_args()
    if arguments.peer:
        table, seed = arguments.peer
        print(scikit_learn(table, int(seed), set(json.load(sys.stdin))))
        return
    record = {}
    with tempfile.TemporaryDirectory() as folder:
        for table, measure in TABLES.items():
            rows = []
            for seed in SEEDS:
                own, lines = run_dltrain(os.path.abspath(arguments.dltrain), table, seed, folder)
                peer = subprocess.run([arguments.python, __file__, "--peer", table, str(seed)], input=json.dumps(lines),
                                      check=True, capture_output=True, text=True)
                rows.append((own, float(peer.stdout)))
                record.setdefault(table, []).append({"held_out": lines, "scikit_learn": rows[-1][1]})
            for name, values in zip(("dltrain", "scikit-learn"), zip(*rows)):
                print(f"{table} {measure}: {name} {sum(values) / len(values):.4f}  ({' '.join(f'{x:.4f}' for x in values)})", flush=True)
    if arguments.record:
        text = ",\n".join(f'"{table}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "]" for table, rows in record.items())
        RECORD.write_text(f"{{\n{text}\n}}\n")


if __name__ == "__main__":
    main()
