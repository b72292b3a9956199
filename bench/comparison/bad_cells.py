"""Task 2 of docs/comparison.md: every cell of a table that cannot be used."""
import csv
import math
import sys

path, target = sys.argv[1:3]
with open(path, encoding="utf-8", newline="") as file:
    rows = csv.reader(file)
    names = next(rows)
    for row in rows:
        if len(row) != len(names):
            print(f"{path}:{rows.line_num}: {len(row)} columns instead of {len(names)}")
            continue
        for name, cell in zip(names, row):
            try:
                good = bool(cell) if name == target else math.isfinite(float(cell))
            except ValueError:
                good = False
            if not good:
                print(f"{path}:{rows.line_num}: {name} is {cell!r}")
