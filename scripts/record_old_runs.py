#!/usr/bin/env python3
"""Records runs that later revisions must resume: runs of one program, stopped by SIGTERM, and their continuation.

    scripts/record_old_runs.py record PROGRAM FOLDER     writes run folders and expected.json, for this processor
    scripts/record_old_runs.py add PROGRAM FOLDER NAME   adds the continuation on another processor, as NAME

FOLDER holds the configurations (*.yaml) and their data, as tests/old_runs/<revision> does; PROGRAM is the
dltrain of that revision. tests/apps/test_old_runs.py resumes copies of the run folders. `add` is for another
instruction set (the name is that of test_old_runs.py: avx512 or avx2).
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "apps"))
from test_old_runs import arguments, continuation, environment, instruction_set  # noqa: E402


def stop_in_the_middle(program, folder, name):
    """Trains until SIGTERM ends the run in its middle third; tries until that happens."""
    run = folder / name
    steps = int(re.search(r"max_steps: (\d+)", (folder / f"{name}.yaml").read_text())[1])
    for attempt in range(400):
        shutil.rmtree(run, ignore_errors=True)
        process = subprocess.Popen([program, "train", f"{name}.yaml", "-q", "--output-dir", name, *arguments(name)], cwd=folder,
                                   env=environment(), stderr=subprocess.DEVNULL)
        while process.poll() is None and not (run / "metrics.jsonl").exists():
            time.sleep(0.0002)
        time.sleep(0.0004 * 1.2 ** (attempt % 40))
        process.send_signal(signal.SIGTERM)
        code = process.wait()
        step = json.loads((run / "summary.json").read_text())["steps"] if (run / "summary.json").exists() else 0
        if code == 75 and steps < 3 * step < 2 * steps:
            (run / ".lock").unlink()
            return step
    raise SystemExit(f"{name}: no attempt was stopped in the middle")


def names(folder):
    return sorted(path.stem for path in folder.glob("*.yaml"))


def record(program, folder, target):
    found = {}
    for name in names(folder):
        with tempfile.TemporaryDirectory() as scratch:
            copy = pathlib.Path(scratch) / "old"
            shutil.copytree(folder, copy, symlinks=True)
            subprocess.run([program, "train", f"{name}.yaml", "-q", "--output-dir", name, "--resume", "auto", *arguments(name)], cwd=copy,
                           env=environment(), check=True)
            found[name] = continuation(copy / name, json.loads((folder / name / "summary.json").read_text())["steps"])
    path = folder / "expected.json"
    expected = json.loads(path.read_text()) if path.exists() else {}
    expected[target] = found
    path.write_text(json.dumps(expected, separators=(",", ":")) + "\n")


def main():
    command, program, folder = sys.argv[1], os.path.abspath(sys.argv[2]), pathlib.Path(sys.argv[3])
    if command == "record":
        for name in names(folder):
            print(name, "stopped after step", stop_in_the_middle(program, folder, name))
        (folder / "expected.json").unlink(missing_ok=True)
    record(program, folder, instruction_set() if command == "record" else sys.argv[4])


if __name__ == "__main__":
    main()
