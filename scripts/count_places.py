#!/usr/bin/env python3
"""Counts the places of one named example of each kind of component and compares them with docs/adding.md.

    scripts/count_places.py     prints the files of each example; exit 1 if there are more than its limit, or a file
                                that its section of docs/adding.md does not name

A place is a file that contains the example's name. Goldens, records and documentation are not places.
"""
import fnmatch
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Kind, limit, section of docs/adding.md, example (extended regular expression), folders.
KINDS = [
    ("op with a gradient", 9, "An op", r"\brotary\b", "lib/ops lib/passes lib/compile kernels tests/ops"),
    ("optimizer", 6, "An optimizer", r"\bLion\b|lion_update|LionRule", "lib/ops lib/passes lib/optim kernels tests/optim tests/ops"),
    ("element-wise function", 3, "An op", r"\bmish\b", "lib/ops lib/passes lib/compile kernels"),
    ("layer", 2, "A layer", r"\bglu\b", "lib tests/nn"),
    ("dataset", 3, "A dataset", r"data/idx\.h|\bidx_row\(", "lib/data tests/data"),
    ("pass", 4, "A pass", r"\bremove_copies\(", "lib/passes lib/compile tests/passes"),
]


def sections(text):
    """docs/adding.md -> {heading before the colon: text of the section}"""
    out, name = {}, None
    for line in text.splitlines():
        if line.startswith("## "):
            name = line[3:].split(":")[0].split(" (")[0]
            out[name] = ""
        elif name:
            out[name] += line + "\n"
    return out


def patterns(section):
    """The paths of a section as patterns: `lib/ops/<op>.cpp` -> lib/ops/*.cpp."""
    return [re.sub(r"<[^>]*>", "*", name) for name in re.findall(r"`([^`\s]+/[^`\s]+\.[a-z]+)`", section)]


def main():
    with open(os.path.join(ROOT, "docs/adding.md"), encoding="utf-8") as file:
        documented = sections(file.read())
    failed = False
    for kind, limit, heading, example, folders in KINDS:
        found = subprocess.run(["git", "grep", "-lE", example, "--", *folders.split()], cwd=ROOT, capture_output=True, text=True)
        files = [f for f in found.stdout.split() if re.search(r"\.(cpp|h|cu|cuh)$", f)]
        known = patterns(documented[heading])
        unknown = [f for f in files if not any(fnmatch.fnmatch(f, p) for p in known)]
        print(f"{kind}: {len(files)} places (at most {limit})")
        for f in files:
            print(f"  {f}" + ("  not in docs/adding.md" if f in unknown else ""))
        failed = failed or len(files) > limit or not files or bool(unknown)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
