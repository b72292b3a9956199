"""The recipes of tables reach what scikit-learn's MLP reaches on the same splits (bench/scikit_learn.py recorded that)."""
import json
import os
import sys
import unittest

import support
from support import PROGRAM, SOURCES

sys.path.insert(0, str(SOURCES / "bench"))
import scikit_learn

# How far the mean of five seeds and splits may stay below: one point of accuracy, 0.02 of R².
MARGIN = {"accuracy": 0.01, "r2": 0.02}


@unittest.skipUnless((SOURCES / "data" / "wine.csv").exists(), "data/wine.csv is not there: scripts/prepare_tables.sh")
class Tables(support.DltrainTest):
    def check(self, table):
        rows = json.loads(scikit_learn.RECORD.read_text())[table]
        own = []
        for seed, row in enumerate(rows):
            value, held_out = scikit_learn.run_dltrain(os.path.abspath(PROGRAM), table, seed, self.folder)
            self.assertEqual(held_out, row["held_out"], "another split than the recorded one")
            own.append(value)
        theirs = sum(row["scikit_learn"] for row in rows) / len(rows)
        self.assertGreaterEqual(sum(own) / len(own), theirs - MARGIN[scikit_learn.TABLES[table]], own)

    def test_breast_cancer(self):
        self.check("breast-cancer")

    def test_wine(self):
        self.check("wine")

    def test_diabetes(self):
        self.check("diabetes")


if __name__ == "__main__":
    support.main()
