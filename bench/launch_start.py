#!/usr/bin/env python3
"""Measures the time from starting the launcher to the end of the first step, for several numbers of ranks.

    bench/launch_start.py [CONFIG] [--ranks 1,2,4] [--times 10]

The first step has ended when its line is in metrics.jsonl. Prints minimum and median.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

SOURCES = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("DLTRAIN", str(SOURCES / "build" / "dltrain"))


def first_step(config, ranks):
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "run" / "metrics.jsonl"
        command = [PROGRAM, "launch", "--nproc-per-node", str(ranks), config, "-q", "--output-dir", str(metrics.parent),
                   "--max-steps", "2"]
        begin = time.perf_counter()
        process = subprocess.Popen(command, cwd=SOURCES, stdout=subprocess.DEVNULL)
        while not (metrics.exists() and metrics.stat().st_size > 0):
            if process.poll() is not None:
                raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
            time.sleep(0.0005)
        took = time.perf_counter() - begin
        if process.wait() != 0:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
        return took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", default="configs/recipes/digits-mlp.yaml")
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--times", type=int, default=10)
    arguments = parser.parse_args()
    for ranks in map(int, arguments.ranks.split(",")):
        times = [1e3 * first_step(arguments.config, ranks) for _ in range(arguments.times)]
        print(f"{ranks} ranks: {min(times):.0f} ms (median {statistics.median(times):.0f}) from the launcher's start to the first step")


if __name__ == "__main__":
    main()
