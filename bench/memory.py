#!/usr/bin/env python3
"""Measures what the techniques of docs/memory.md save and cost, as the rows of its table.

    bench/memory.py [--rounds 3] [--steps 4] [--threads 2] [CASE...]

A case is a configs/bench/CASE.yaml (default: gpt2_124m gpt_char). Each round runs every technique once, so that other work on the
machine affects all. Printed are the peak of the resident memory (the largest of the rounds), the planned memory, and the shortest
step, the last two beside those of the plain case.
"""
import argparse
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TECHNIQUES = [
    ("plain, f32", []),
    ("`memory.recompute: selective`", ["memory.recompute=selective"]),
    ("`memory.recompute: blocks`", ["memory.recompute=blocks"]),
    ("`memory.recompute: full`", ["memory.recompute=full"]),
    ("half the micro-batch", ["training.micro_batch_size=HALF"]),
    ("`optimizer_in_backward`", ["training.optimizer_in_backward=true", "training.clip_norm=previous"]),
    ("`precision.compute: bf16`", ["precision.compute=bf16"]),
    ("bf16 parameters and residuals", ["precision={compute: bf16, parameters: bf16, residual: bf16}"]),
    ("the same, updates in the backward", ["precision={compute: bf16, parameters: bf16, residual: bf16}",
                                           "training.optimizer_in_backward=true", "training.clip_norm=previous"]),
    ("`optimizer.moments: 8bit`", ["optimizer.moments=8bit"]),
    ("8-bit moments, updates in the backward", ["optimizer.moments=8bit", "training.optimizer_in_backward=true", "training.clip_norm=previous"]),
    ("`optimizer.galore: {rank: 64}`", ["optimizer.galore={rank: 64}"]),
    ("`model.lora: 16`", ["model.lora=16"]),
    ("`model.lora: {rank: 16, base: nf4}`, bf16", ["model.lora={rank: 16, base: nf4}", "precision.compute=bf16"]),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", default=["gpt2_124m", "gpt_char"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dltrain", default=str(ROOT / "build" / "dltrain"))
    arguments = parser.parse_args()
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads))
    for case in arguments.cases:
        config = ROOT / "configs" / "bench" / f"{case}.yaml"
        batch = int(re.search(r"global_batch_size: (\d+)", config.read_text())[1])
        peaks, steps, plans = {}, {}, {}
        for _ in range(arguments.rounds):
            for name, settings in TECHNIQUES:
                options = [f"training.max_steps={arguments.steps}", *(s.replace("HALF", str(batch // 2)) for s in settings)]
                options = [part for option in options for part in ("-s", option)]
                with tempfile.TemporaryDirectory() as folder:
                    result = Path(folder) / "result.json"
                    run = subprocess.run([arguments.dltrain, "train", config, "-q", "--output-dir", f"{folder}/run", "--result", result, *options],
                                         env=environment, capture_output=True, text=True)
                    if run.returncode != 0:
                        raise SystemExit(f"{case}, {name}: {run.stderr}")
                    figures = json.loads(result.read_text())
                peaks[name] = max(peaks.get(name, 0), figures["peak_rss_mib"])
                steps[name] = min(steps.get(name, 1e30), figures["step_ms_min"])
                if name not in plans:
                    planned = subprocess.run([arguments.dltrain, "plan", config, *options], env=environment, capture_output=True, text=True)
                    plans[name] = int(re.search(r"(\d+) bytes are allocated", planned.stdout)[1]) / 2**20
        plain = TECHNIQUES[0][0]
        print(f"| {case} | peak MiB | planned MiB | planned / plain | time / plain |\n|---|---:|---:|---:|---:|")
        for name, _ in TECHNIQUES:
            print(f"| {name} | {peaks[name]:,.0f} | {plans[name]:,.0f} | {plans[name] / plans[plain]:.2f} | {steps[name] / steps[plain]:.2f} |")


if __name__ == "__main__":
    main()
