#!/usr/bin/env python3
"""Times training steps with all threads against one thread, on free cores and with a busy loop on every core.

    bench/busy.py [CONFIG or CASE...] [--rounds 3] [--steps 300] [--at-most 2]

A case is one of configs/bench. The runs are interleaved. The figure is the mean time of a step (the mean, because the slow
steps on busy cores are of interest), the minimum over all rounds. Exit code 1 if on busy cores all threads take more
than --at-most times the time of one.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def measure(arguments, config, threads):
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [arguments.dltrain, "--config", config, "--max-steps", arguments.steps, "--quiet", "--device", "cpu",
                   "--output-dir", Path(folder) / "run", "--result", result, "-s", "data.eval=null",
                   "-s", "evaluation.eval_steps=null", "-s", "checkpoint.save_steps=null"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        environment.pop("OMP_WAIT_POLICY", None)
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=ROOT, env=environment)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\nfailed with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
        summary = json.loads(result.read_text())
        return 1e3 * summary["seconds"] / summary["steps"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", default=["configs/recipes/digits-mlp.yaml"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--at-most", type=float, default=2, metavar="RATIO")
    parser.add_argument("--dltrain", default=os.environ.get("DLTRAIN", str(ROOT / "build" / "dltrain")))
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    failed = False
    for case in arguments.cases:
        config = case if case.endswith(".yaml") else f"configs/bench/{case}.yaml"
        best = {}
        for _ in range(arguments.rounds):
            for load in (0, cores):
                loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
                try:
                    for threads in (1, cores):
                        figure = measure(arguments, config, threads)
                        best[load, threads] = min(best.get((load, threads), figure), figure)
                finally:
                    for loop in loops:
                        loop.kill()
                        loop.wait()
        ratio = best[cores, cores] / best[cores, 1]
        failed |= ratio > arguments.at_most
        print(f"{case}: ms per step with 1 and {cores} threads: free cores {best[0, 1]:.2f}, {best[0, cores]:.2f} (ratio "
              f"{best[0, cores] / best[0, 1]:.2f}); taken cores {best[cores, 1]:.2f}, {best[cores, cores]:.2f} (ratio {ratio:.2f})", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
