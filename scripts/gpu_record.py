#!/usr/bin/env python3
"""Used by scripts/gpu_check.sh: compares the losses of two runs, and writes the record of a check.

    gpu_record.py compare A/metrics.jsonl B/metrics.jsonl TOLERANCE
        TOLERANCE is relative: one number for all steps, or FIRST:REST. 0 means equality.
        Prints the largest difference; exits with 9 if it exceeds the tolerance.
    gpu_record.py write OUT FOLDER ENGINE
        writes FOLDER/<date>-<device>.md and .json from the folder OUT of gpu_check.sh.
"""
import datetime
import json
import os
import re
import sys


def losses(path):
    """{step: loss} of the training lines of a metrics file."""
    out = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            entry = json.loads(line)
            if "step" in entry and "loss" in entry:
                out[entry["step"]] = entry["loss"]
    return out


def compare(path_a, path_b, tolerance):
    first, _, rest = tolerance.partition(":")
    limits = float(first), float(rest or first)
    a, b = losses(path_a), losses(path_b)
    if not a or a.keys() != b.keys():
        print(f"different steps: {len(a)} and {len(b)}")
        return 9
    worst, place, bad = 0.0, None, False
    for index, step in enumerate(sorted(a)):
        difference = abs(a[step] - b[step]) / max(abs(a[step]), 1e-30)
        if difference != difference:
            difference = float("inf")
        bad = bad or difference > limits[0 if index == 0 else 1]
        if difference >= worst:
            worst, place = difference, step
    print(f"{len(a)} losses, largest relative difference {worst:.3g} at step {place}, allowed {tolerance}")
    return 9 if bad else 0


def read(path):
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


PARTS = "device ops sanitizer trajectories repeat resume generation refusals ranks training timing".split()
WORDS = {"0": "passed", "77": "skipped", "124": "ran out of time", "": "not run"}


def write(out, folder, engine):
    timing = json.loads(read(os.path.join(out, "timing.json")) or "{}")
    ops = {dtype: json.loads(read(os.path.join(out, f"ops-{dtype}.json")) or "{}") for dtype in ("f32", "bf16", "f16")}
    collectives = json.loads(read(os.path.join(out, "collectives.json")) or "{}")
    device = timing.get("device", {}).get("name", "unknown device") if engine == "cuda" else "rehearsal on the CPU"
    date = datetime.date.today().isoformat()
    name = f"{date}-{re.sub('[^a-z0-9]+', '-', device.lower()).strip('-')}"
    parts = {}
    for part in PARTS:
        status = read(os.path.join(out, part + ".status")).strip()
        parts[part] = {
            "result": WORDS.get(status, f"failed (status {status})"),
            "seconds": int(read(os.path.join(out, part + ".seconds")).strip() or 0),
        }
    lines = [f"# {device}, {date}", "", f"Written by `scripts/gpu_check.sh`; raw numbers in `{name}.json`.", ""]
    lines += ["```", read(os.path.join(out, "device.log")).strip(), "```", ""]
    lines += ["| part | result | seconds |", "|---|---|---|"]
    lines += [f"| {part} | {found['result']} | {found['seconds']} |" for part, found in parts.items()]
    for part in PARTS[1:]:
        log = read(os.path.join(out, part + ".log")).strip()
        if log:
            lines += ["", f"## {part}", "", "```", log, "```"]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name + ".md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
        record = {"device": device, "date": date, "parts": parts, "ops": ops, "collectives": collectives}
        json.dump({**record, "timing": timing}, file, indent=1)
        file.write("\n")
    print(f"{folder}/{name}.md")
    return 0


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "compare":
        sys.exit(compare(*sys.argv[2:]))
    if len(sys.argv) == 5 and sys.argv[1] == "write":
        sys.exit(write(*sys.argv[2:]))
    sys.exit(__doc__)


main()
