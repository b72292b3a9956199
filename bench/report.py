#!/usr/bin/env python3
"""Times `dltrain report` over many runs with long logs.

    bench/report.py [--runs 100] [--steps 10000] [--program build/dltrain]
"""
import argparse
import json
import math
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

CONFIG = """name: short
model: {layers: [{type: linear, out_features: 8}, {type: relu}, {type: linear, out_features: 3}]}
loss: {type: cross_entropy}
data: {train: {type: synthetic, shape: [4], classes: 3, samples: 64}}
optimizer: {type: adamw, learning_rate: 1.0e-3}
training: {global_batch_size: 16, max_steps: 10}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--program", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1] / "build" / "dltrain")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "short.yaml").write_text(CONFIG)
        first = folder / "runs" / "run-0"
        subprocess.run([options.program, "train", folder / "short.yaml", "-q", "--output-dir", first], check=True)
        draw = random.Random(0)
        for i in range(options.runs):
            run = folder / "runs" / f"run-{i}"
            if i > 0:
                shutil.copytree(first, run)
            rows = ({"step": step, "loss": 2 * math.exp(-step / 3000) + draw.random() / 5, "learning_rate": 1e-3, "grad_norm": 1 + draw.random(), "epoch": step / 100,
                     "samples_per_second": 1e5, "step_ms": 0.5, "data_wait_ms": 0.01, "memory_mib": 30.5, "time": 1.7e9 + step / 2, "attempt": 1,
                     "samples_seen": 16 * step} for step in range(1, options.steps + 1))
            (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        times = []
        for _ in range(3):
            begin = time.monotonic()
            subprocess.run([options.program, "report", folder / "runs", "-o", folder / "page.html"], check=True, stdout=subprocess.DEVNULL)
            times.append(time.monotonic() - begin)
        size = (folder / "page.html").stat().st_size
        print(f"{options.runs} runs of {options.steps} logged steps: {min(times):.2f} s (fastest of 3), a page of {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
