#!/usr/bin/env python3
"""Times full training steps of dltrain against PyTorch on the CPU, interleaved on the same machine.

    bench/compare.py CASE... [--dtype f32|bf16] [--threads 2] [--rounds 3] [--peers eager,compile] [--json FILE]
    bench/compare.py --list

A case is a configs/bench/CASE.yaml, which has the shapes of the case of that name in bench/torch_bench.py.
Each round runs dltrain once and then each peer once, so that other work on the machine affects both. A
figure is the minimum (of the step time and of the start) or maximum (of the peak memory) over the rounds.

    ms/step   the shortest step after warm-up           ratio   fastest peer's / dltrain's   (more is better)
    peak MiB  peak resident memory of the process       memory  dltrain's / smallest peer's  (less is better)
    start ms  process start to the end of the 1st step  start   fastest peer's / dltrain's   (more is better)

Exit status: 0 on success; 2 on wrong usage, without PyTorch, or without build/dltrain.
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


def known_cases():
    return sorted(path.stem for path in (ROOT / "configs" / "bench").glob("*.yaml"))


def usage_error(message):
    print(f"bench/compare.py: {message}", file=sys.stderr)
    sys.exit(2)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--list", action="store_true", help="print the cases")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="timed steps (default: the number in torch_bench.py for the case; 300 without peers)")
    parser.add_argument("--peers", default="eager,compile", help="modes of PyTorch, separated by commas")
    parser.add_argument("--python", default=os.environ.get("TORCH_PYTHON", "python3"), help="a Python with torch")
    parser.add_argument("--dltrain", default=str(ROOT / "build" / "dltrain"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="passed to dltrain as -s")
    parser.add_argument("--json", metavar="FILE", help="also write all figures to FILE")
    arguments = parser.parse_args()
    arguments.peers = [peer for peer in arguments.peers.split(",") if peer]
    return arguments


def check_arguments(arguments):
    unknown = [case for case in arguments.cases if case not in known_cases()]
    if unknown or not arguments.cases:
        usage_error(f"{'no case ' + unknown[0] if unknown else 'no case given'} (cases: {', '.join(known_cases())})")
    wrong = [peer for peer in arguments.peers if peer not in ("eager", "compile")]
    if wrong:
        usage_error(f"unknown peer {wrong[0]} (peers: eager, compile)")
    if not os.access(arguments.dltrain, os.X_OK):
        usage_error(f"{arguments.dltrain} is missing: run scripts/quickstart.sh or cmake --build build")
    try:
        found = subprocess.run([arguments.python, "-c", "import torch"], capture_output=True).returncode == 0
    except OSError:
        found = False
    if arguments.peers and not found:
        usage_error(f"{arguments.python} has no PyTorch. Create an environment with PyTorch and give its python:\n"
                    "    python3 -m venv .venv && .venv/bin/pip install torch\n"
                    "    bench/compare.py --python .venv/bin/python ...")


def run(command, environment=None):
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nfailed with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def run_torch(arguments, case, mode, cache):
    command = [arguments.python, ROOT / "bench" / "torch_bench.py", case, "--dtype", arguments.dtype,
               "--threads", str(arguments.threads), "--json"]
    if arguments.steps:
        command += ["--steps", str(arguments.steps)]
    if mode == "compile":
        command += ["--compile", "--cache-dir", cache]  # the second round starts with a warm cache
    result = json.loads(run(command).splitlines()[-1])
    return {"step_ms": result["ms_min"], "median_ms": result["ms_median"], "peak_mib": result["peak_rss_mib"],
            "start_ms": result["start_to_first_step_s"] * 1e3, "timed_steps": result["steps"],
            "others_busy_cores": result["others_busy_cores"]}


def run_dltrain(arguments, case, steps):
    with tempfile.TemporaryDirectory() as folder:
        result_file = os.path.join(folder, "result.json")
        command = [arguments.dltrain, "--config", f"configs/bench/{case}.yaml", "--max-steps", str(steps), "--quiet",
                   "--device", "cpu", "--output-dir", os.path.join(folder, "run"), "--result", result_file]
        for assignment in [f"precision.compute={arguments.dtype}"] * (arguments.dtype != "f32") + arguments.set:
            command += ["-s", assignment]
        run(command, {"OMP_NUM_THREADS": str(arguments.threads)})
        with open(result_file, encoding="utf-8") as file:
            result = json.load(file)
    return {"step_ms": result["step_ms_min"], "median_ms": result["step_ms_median"],
            "peak_mib": result["peak_rss_mib"], "start_ms": result["first_step_ms"]}


def best_of(rounds):
    """Returns the minimum of the times and the maximum of the memory over the rounds."""
    best = {key: min(figures[key] for figures in rounds) for key in ("step_ms", "median_ms", "start_ms")}
    best["peak_mib"] = max(figures["peak_mib"] for figures in rounds)
    return best


def measure(arguments, case):
    """Returns {"dltrain": figures, "eager": figures, ...}, each with its rounds."""
    sides = {name: [] for name in ["dltrain"] + arguments.peers}
    steps = arguments.steps or 300
    with tempfile.TemporaryDirectory() as cache:
        for number in range(arguments.rounds):
            for peer in arguments.peers:
                print(f"{case}: round {number + 1} of {arguments.rounds}, PyTorch {peer}", file=sys.stderr)
                sides[peer].append(run_torch(arguments, case, peer, cache))
                steps = sides[peer][-1]["timed_steps"]
            print(f"{case}: round {number + 1} of {arguments.rounds}, dltrain", file=sys.stderr)
            sides["dltrain"].append(run_dltrain(arguments, case, steps + 1))  # the first is not timed
    return {name: {**best_of(rounds), "rounds": rounds} for name, rounds in sides.items()}


def print_table(arguments, results):
    print(f"{arguments.dtype}, {arguments.threads} threads, {arguments.rounds} rounds, best of each side\n")
    print("| case | side | ms/step min | median | peak MiB | start ms | ratio | memory | start |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for case, sides in results.items():
        peers = [sides[peer] for peer in arguments.peers]
        for name, figures in sides.items():
            row = (f"| {case} | {name if name == 'dltrain' else 'PyTorch ' + name} | {figures['step_ms']:.3f} "
                   f"| {figures['median_ms']:.3f} | {figures['peak_mib']:.0f} | {figures['start_ms']:.0f} |")
            if name == "dltrain" and peers:
                row += (f" {min(peer['step_ms'] for peer in peers) / figures['step_ms']:.2f}x "
                        f"| {figures['peak_mib'] / min(peer['peak_mib'] for peer in peers):.2f} "
                        f"| {min(peer['start_ms'] for peer in peers) / figures['start_ms']:.1f}x |")
            else:
                row += " | | |"
            print(row)


def main():
    arguments = parse_arguments()
    if arguments.list:
        print("\n".join(known_cases()))
        return
    check_arguments(arguments)
    results = {case: measure(arguments, case) for case in arguments.cases}
    print_table(arguments, results)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


main()
