#!/usr/bin/env python3
"""Checks that includes go downwards only (docs/design.md).

    scripts/check_includes.py [ROOT]        checks lib/, kernels/ and apps/; exit 1 on a violation
    scripts/check_includes.py --self-test   checks that each kind of violation is found

ALLOWED lists every folder of lib/ and kernels/ with the folders it may include besides itself.
Project headers are written "folder/file.h". A quoted include that is not a project header, a project
header in angle brackets, and a cycle of headers are also violations.
"""
import os
import re
import sys
import tempfile

import source_check

GRAPH = "base config tensor device comm ops graph nn optim"
ALLOWED = {
    "lib/base": "",
    "lib/config": "base",
    "lib/tensor": "base",
    "lib/device": "base tensor",
    "lib/comm": "base tensor device",
    "lib/text": "base config tensor",
    "lib/data": "base config tensor device text",
    "lib/ops": "base tensor device",
    "lib/graph": "base tensor device comm ops",
    "lib/nn": "base config tensor ops graph",
    "lib/optim": "base config tensor ops graph",
    "lib/passes": GRAPH,
    "lib/compile": GRAPH + " passes",
    "lib/telemetry": "base config tensor",
    "lib/experiment": GRAPH + " passes compile data text",
    "lib/runtime": GRAPH + " passes compile data",
    "lib/generate": GRAPH + " passes compile runtime text",
    "lib/checkpoint": GRAPH + " passes compile data text experiment runtime",
    "lib/run": GRAPH + " passes compile data telemetry text generate experiment runtime checkpoint",
    "lib/checks": GRAPH + " passes compile data text experiment runtime checkpoint run",
    "lib/profile": GRAPH + " passes compile data telemetry experiment runtime checkpoint run",
    "lib/report": GRAPH + " passes compile data telemetry experiment runtime checkpoint run",
    "lib/launch": "base config comm",
    "lib/sweep": GRAPH + " passes compile data telemetry experiment runtime checkpoint run report launch",
    "kernels/shared": "base tensor device ops",
    "kernels/reference": "base tensor device ops shared",
    "kernels/cpu": "base tensor device ops shared",
    "kernels/cuda": "base tensor device ops shared",
}
ALLOWED = {folder: names.split() for folder, names in ALLOWED.items()}
# By cmake/tables.cmake, cmake/kernel_makers.cmake and cmake/plugins.cmake.
GENERATED = ("ops/definitions.h", "nn/plugin_abi.h", "reference/makers.h", "cpu/makers.h", "cuda/makers.h")
SOURCES = (".h", ".cpp", ".cu", ".cuh")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)


def source_files(root, top):
    for path, _, names in os.walk(os.path.join(root, top)):
        for name in sorted(names):
            if name.endswith(SOURCES):
                yield os.path.relpath(os.path.join(path, name), root)


def owner(path):
    """lib/data/csv/x.h -> lib/data"""
    return "/".join(path.split("/")[:2])


def find_cycle(edges):
    """Returns the first cycle of the graph {file: [files]} as a list, or None."""
    state = {}

    def visit(node, trail):
        state[node] = "open"
        for following in edges.get(node, []):
            if state.get(following) == "open":
                return trail[trail.index(following):] + [following]
            if following not in state:
                cycle = visit(following, trail + [following])
                if cycle:
                    return cycle
        state[node] = "done"
        return None

    for node in sorted(edges):
        if node not in state:
            cycle = visit(node, [node])
            if cycle:
                return cycle
    return None


def check_include(root, path, text_name, bracket):
    """Returns (error or None, included project file or None)."""
    folder = text_name.split("/")[0]
    parents = [top for top in ("lib", "kernels") if f"{top}/{folder}" in ALLOWED and "/" in text_name]
    if bracket == "<":
        if parents and os.path.exists(os.path.join(root, parents[0], text_name)):
            return f'<{text_name}> is a project header: write "{text_name}"', None
        return None, None
    if text_name in GENERATED:
        return None, None
    if path.startswith("apps/") and os.path.exists(os.path.join(root, "apps", text_name)):
        return None, None
    if not parents or not os.path.exists(os.path.join(root, parents[0], text_name)):
        return f'"{text_name}" is not a project header (write "folder/file.h", or <> for a library)', None
    included = f"{parents[0]}/{text_name}"
    if path.startswith("apps/") or owner(included) == owner(path):
        return None, included
    if folder not in ALLOWED[owner(path)]:
        allowed = ", ".join(ALLOWED[owner(path)]) or "no other folder"
        return f'{owner(path)} may not include "{text_name}"; it may include {allowed}', None
    return None, included


def check(root):
    """Returns all violations as lines "file:line: message", and the number of files read."""
    errors, edges, count = [], {}, 0
    for top in ("lib", "kernels", "apps"):
        for path in source_files(root, top):
            count += 1
            if top != "apps" and owner(path) not in ALLOWED:
                errors.append(f"{path}:1: folder {owner(path)} is unknown: add it to ALLOWED with its place")
                continue
            with open(os.path.join(root, path), encoding="utf-8") as file:
                text = file.read()
            for match in INCLUDE.finditer(text):
                error, included = check_include(root, path, match[2], match[1])
                if error:
                    errors.append(f"{path}:{text.count(chr(10), 0, match.start(2)) + 1}: {error}")
                # The second part of a header ("x_inline.h") includes the first so that tools can parse it alone.
                if included and included != path.replace("_inline.h", ".h"):
                    edges.setdefault(path, []).append(included)
    cycle = find_cycle(edges)
    if cycle:
        errors.append(f"{cycle[0]}:1: headers include each other: {' -> '.join(cycle)}")
    return errors, count


def self_test():
    good = {
        "lib/base/a.h": "#include <vector>\n",
        "lib/tensor/t.h": '#include "base/a.h"\n',
        "kernels/shared/s.h": '#include "base/a.h"\n',
        "kernels/cpu/k.cpp": '#include "shared/s.h"\n#include "tensor/t.h"\n',
        "apps/dltrain/main.cpp": '#include "tensor/t.h"\n#include "cpu/k.h"\n#include "dltrain/c.h"\n',
        "apps/dltrain/c.h": "",
        "kernels/cpu/k.h": "",
        "lib/graph/g.h": "",
    }
    bad = {
        "upwards": {"lib/base/x.h": '#include "tensor/t.h"\n'},
        "lib to kernels": {"lib/run/x.cpp": '#include "cpu/k.h"\n'},
        "kernels to graph": {"kernels/cpu/x.cpp": '#include "graph/g.h"\n'},
        "unknown folder": {"lib/misc/x.h": ""},
        "relative": {"lib/base/x.h": '#include "a.h"\n'},
        "angle brackets": {"lib/tensor/x.h": "#include <base/a.h>\n"},
        "cycle": {"lib/base/x.h": '#include "base/y.h"\n', "lib/base/y.h": '#include "base/x.h"\n'},
    }
    for name, extra in [("good", {}), *bad.items()]:
        with tempfile.TemporaryDirectory() as root:
            source_check.write_tree(root, {**good, **extra})
            errors, _ = check(root)
            if len(errors) != (0 if name == "good" else 1):
                sys.exit(f"self-test '{name}': {errors}")
    print(f"self-test: {len(bad)} kinds of violation found")


source_check.main(check, self_test, "includes of {} files")
