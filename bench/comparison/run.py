#!/usr/bin/env python3
"""Runs every task of docs/comparison.md with dltrain and with PyTorch and Lightning, one after the other, and prints its table: commands
typed, lines written, and seconds from the first command's start to the last one's end (the minimum of the rounds). A command that
kills another one is not timed. A block whose output lacks what TASKS expects is an error.

    bench/comparison/run.py --python VENV/bin/python [--dltrain build/dltrain] [--rounds 3] [--tasks 1,5] [--json FILE]
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "bench" / "comparison"
# What the output of dltrain, and that of Python, must have.
TASKS = {
    0: ("1 step in", "max_steps=1. reached"),
    1: ("step 1000: evaluation", "max_epochs=66. reached"),
    2: ("6 cells.*:77: .*:9 ", ":9: .*:77: "),
    3: ("learning_rat'.*many", "many"),
    4: (r"(\d+) of \1 checks passed", "overfit one batch: 0.0"),
    5: ("step 200: evaluation.*28 tensors", "step 200: loss.*def main"),
    6: ("fits: needs", "needs .* MiB"),
    7: ("the largest that fits", "that fits: 256"),
    8: ("resumed from.*steps in", "Restored all states.*reached"),
    9: ("resumed from.*checkpoints: bit-identical", "Restored all states.*bit-identical"),
    10: (r"\[.*.watched", "wandb sync"),
    11: (r"confusion.:\[\[", r"tensor\(\[\["),
    12: ("malignant,", "malignant,"),
    13: ("learning_rate: 0.001 -> 0.01.*2 runs", r"rate: 0.01.*\[.*.faster"),
    14: ("the best is trial", "params_rate"),
    15: ("bit-identical.*reproduced", "bit-identical"),
    16: ("steps in", "reached"),
    17: ("steps in", "64 of 128 rows"),
    18: ("steps in", "64 of 128 rows"),
    19: ("adapters from.*merged from", "eval_loss.*'epoch': '3'"),
    20: ("bound by data", "train_dataloader_next"),
}
# Measures until TensorBoard lists a run, instead of waiting for a reader.
PREAMBLE = """set -eu
tensorboard() {
  command tensorboard "$@" --port 6016 &
  for i in $(seq 600); do curl -s localhost:6016/data/runs | grep '"' && break; sleep 0.1; done
  kill $!
  wait $! || true
}
"""


def tasks_of_page():
    """{number: (title, block of dltrain, block of Python)}; 0 is the start."""
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    found = re.findall(r"^### (\d+)\. (.*?)\n(.*?)(?=^##|\Z)", page, re.M | re.S)
    return {int(number): (title, *re.findall(r"^```(?:ba)?sh\n(.*?)^```$", text, re.M | re.S)[:2]) for number, title, text in found}


def commands_of(block):
    """[(text, lines of here-documents)] of a block."""
    commands, end = [], ""
    for line in block.splitlines():
        if end:
            commands[-1] = (commands[-1][0] + line + "\n", commands[-1][1] + (line != end and line != ""))
            end = "" if line == end else end
        elif commands and commands[-1][0].endswith("\\\n"):
            commands[-1] = (commands[-1][0] + line + "\n", 0)
        elif line:
            commands.append((line + "\n", 0))
            end = re.search(r"<<'(\w+)'|$", line)[1]
    return commands


def python_lines():
    """{task: lines of Python}: those after `# Task N`, or all of a script whose docstring begins with its number."""
    count = {}
    for path in SCRIPTS.glob("*.py"):
        task = None
        for line in path.read_text(encoding="utf-8").splitlines():
            named = re.match(r'"""Tasks? (\d+) |\s*# Task (\d+)', line)
            task = int(named[1] or named[2]) if named else task
            if task and not named and line.strip():
                count[task] = count.get(task, 0) + 1
    return count


def run(block, folder, environment, expected):
    """Seconds of the timed commands."""
    script = PREAMBLE + "".join(f"echo $EPOCHREALTIME >> times\n{text}" for text, _ in commands_of(block)) + "echo $EPOCHREALTIME >> times\n"
    (folder / "times").unlink(missing_ok=True)
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", check=False)
    if done.returncode != 0 or not re.search(expected, done.stdout, re.S):
        sys.exit(f"{block}\nended with {done.returncode}, expected output: {expected}\n{done.stdout[-6000:]}")
    times = [float(line) for line in (folder / "times").read_text().split()]
    return sum(end - start for start, end, (text, _) in zip(times, times[1:], commands_of(block)) if "kill" not in text)


def install_sizes(program, python):
    libraries = re.findall(r"=> (/\S+)", subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout)
    ours = sum(os.stat(path).st_size for path in [program, *libraries])
    venv = pathlib.Path(python).parent.parent
    theirs = sum(path.lstat().st_size for path in venv.rglob("*") if path.is_file() and not path.is_symlink())
    return f"dltrain and its {len(libraries)} libraries: {ours / 2**20:.0f} MiB; {venv.name}: {theirs / 2**20:.0f} MiB"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--dltrain", default=ROOT / "build" / "dltrain")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", help="numbers of some tasks; task 1 makes files for most others")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    page = tasks_of_page()
    numbers = [int(number) for number in arguments.tasks.split(",")] if arguments.tasks else list(page)
    program, python = os.path.abspath(arguments.dltrain), os.path.abspath(arguments.python)
    paths = f"{os.path.dirname(program)}:{os.path.dirname(python)}:{os.environ['PATH']}"
    environment = dict(os.environ, PATH=paths, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", WANDB_MODE="offline", PYTHONWARNINGS="ignore")
    seconds = {number: ([], []) for number in numbers}
    for turn in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as temporary:
            folders = pathlib.Path(temporary, "dltrain"), pathlib.Path(temporary, "python")
            for folder in folders:
                folder.mkdir()
                (folder / "data").symlink_to(ROOT / "data")
                subprocess.run([sys.executable, SCRIPTS / "prepare.py", "."], cwd=folder, check=True)
                for path in SCRIPTS.glob("*.py"):
                    (folder / path.name).symlink_to(path)
            for number in numbers:
                for side in (0, 1):
                    seconds[number][side].append(run(page[number][1 + side], folders[side], environment, TASKS[number][side]))
                print(f"round {turn + 1}, task {number}: {seconds[number][0][-1]:.2f} and {seconds[number][1][-1]:.2f} s", file=sys.stderr, flush=True)
    written = python_lines()
    shown = [[(f"{value:.2f}" if value < 10 else f"{value:.1f}") for value in map(min, seconds[number])] for number in numbers]
    print("| | task | dltrain: commands | lines | s | PyTorch: commands | lines | s |\n|---:|---|---:|---:|---:|---:|---:|---:|")
    for number, times in zip(numbers, shown):
        ours, theirs = (commands_of(block) for block in page[number][1:])
        print(f"| {number} | {page[number][0]} | {len(ours)} | {sum(lines for _, lines in ours)} | {times[0]} "
              f"| {len(theirs)} | {written.get(number, 0)} | {times[1]} |")
    print(install_sizes(program, python))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(seconds), encoding="utf-8")


main()
