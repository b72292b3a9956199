#!/usr/bin/env python3
"""Times training steps on 2 ranks of 1 thread against 1 rank of 2 threads, at the same global batch, and PyTorch's
DistributedDataParallel over Gloo in the same set-up; all interleaved on the same machine.

    bench/ranks.py CASE... [--rounds 3] [--steps 60] [--no-torch] [--set KEY=VALUE]
    bench/ranks.py gpt_char --layout tensor|pipeline    # ranks share the model (bench/torch_layouts.py)

A case is one of bench/compare.py. The figure is the shortest step after warm-up over all rounds.
--python selects a Python with PyTorch (default: the environment variable TORCH_PYTHON, or python3).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAUNCH = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
LAYOUTS = {"tensor": ["parallelism.tensor=2"], "pipeline": ["parallelism.pipeline=2", "training.micro_batch_size=2"]}


def run(command, threads):
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=ROOT, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nfailed with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def dltrain(arguments, case, ranks, threads):
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [arguments.dltrain, "--config", f"configs/bench/{case}.yaml", "--max-steps", arguments.steps + 1, "--quiet",
                   "--device", "cpu", "--output-dir", Path(folder) / "run", "--result", result, "--nproc-per-node", ranks]
        for assignment in [*(LAYOUTS[arguments.layout] if ranks > 1 and arguments.layout else []), *arguments.set]:
            command += ["-s", assignment]
        run(command, threads)
        return json.loads(result.read_text())["step_ms_min"]


def torch(arguments, case, ranks, threads):
    if ranks > 1 and arguments.layout:
        bench = ["bench/torch_layouts.py", arguments.layout, "--threads", threads, "--steps", arguments.steps]
        return json.loads(run([arguments.python, *LAUNCH, ranks, *bench], threads).splitlines()[-1])["ms_min"]
    bench = [ROOT / "bench" / "torch_bench.py", case, "--threads", threads, "--steps", arguments.steps, "--json"]
    launch = [*LAUNCH, ranks] if ranks > 1 else []
    lines = run([arguments.python, *launch, *bench], threads).splitlines()
    return json.loads([line for line in lines if line.startswith("{")][-1])["ms_min"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", metavar="CASE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60, help="timed steps")
    parser.add_argument("--layout", choices=LAYOUTS, help="what the two ranks share; without it each has samples of its own")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--python", default=os.environ.get("TORCH_PYTHON", "python3"), help="a Python with torch")
    parser.add_argument("--dltrain", default=str(ROOT / "build" / "dltrain"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="passed to dltrain as -s")
    arguments = parser.parse_args()
    if arguments.layout and arguments.cases != ["gpt_char"]:
        parser.error("--layout compares gpt_char only")
    sides = {"dltrain": dltrain} if arguments.no_torch else {"dltrain": dltrain, "torch": torch}
    for case in arguments.cases:
        best = {}
        for _ in range(arguments.rounds):
            for name, side in sides.items():
                for ranks, threads in ((1, 2), (2, 1)):
                    figure = side(arguments, case, ranks, threads)
                    best[name, ranks] = min(best.get((name, ranks), figure), figure)
        for name in sides:
            alone, together = best[name, 1], best[name, 2]
            print(f"{case:16} {name:8} 1 rank x 2 threads {alone:9.2f} ms   2 ranks x 1 thread {together:9.2f} ms   "
                  f"ratio {together / alone:.3f}", flush=True)


if __name__ == "__main__":
    main()
