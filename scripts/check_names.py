#!/usr/bin/env python3
"""Proves that no two types of one program have the same name.

    scripts/check_names.py [ROOT]        checks lib/, kernels/ and apps/; exit 1 on a violation
    scripts/check_names.py --self-test   shows that a violation is found

Two classes dltrain::Node in two headers that never meet in one source compile and link: the linker takes
one of the two destructors for both, and the first exception ends in a corrupt heap (C++'s one-definition
rule; the compiler need not tell). Types of one source stand in an unnamed namespace, where they may be
called like others. The CUDA plug-in is a program of its own.
"""
import collections
import os
import re
import sys
import tempfile

import source_check

PROGRAMS = {
    "dltrain": ("lib/", "apps/", "kernels/shared/", "kernels/reference/", "kernels/cpu/"),
    "the CUDA plug-in": ("lib/", "kernels/shared/", "kernels/cuda/"),
}
OPEN = re.compile(r"(?:inline )?namespace\s*([\w:]*)\s*\{(?!.*\})")
CLOSE = re.compile(r"\}\s*// namespace")
# As clang-format writes them: types of a namespace begin in the first column.
TYPE = re.compile(r"(?:struct|class|enum class|enum|union)\s+(?:\[\[\w+\]\]\s+|alignas\([^)]*\)\s+)?([\w:]+)\s*(?:final\s*)?(?::(?!:)[^;]*)?\{")


def types(text):
    """(line, qualified name) of each type with a body that other sources can name."""
    stack = []
    for number, line in enumerate(text.splitlines(), 1):
        opened = OPEN.match(line)
        found = TYPE.match(line)
        if opened:
            stack.append(opened[1])
        elif CLOSE.match(line):
            stack.pop()
        elif found and "" not in stack:
            yield number, "::".join([*stack, found[1]])


def check(root):
    """All violations, and the number of types."""
    places = collections.defaultdict(list)
    for top in ("lib", "kernels", "apps"):
        for path, _, names in sorted(os.walk(os.path.join(root, top))):
            for name in sorted(names):
                if name.endswith((".h", ".cpp", ".cu", ".cuh")):
                    with open(os.path.join(path, name), encoding="utf-8") as file:
                        text = file.read()
                    relative = os.path.relpath(os.path.join(path, name), root)
                    for line, type_name in types(text):
                        places[type_name].append(f"{relative}:{line}")
    errors = []
    for name, all_places in sorted(places.items()):
        for program, folders in PROGRAMS.items():
            own = [place for place in all_places if place.startswith(folders)]
            if len(own) > 1:
                errors.append(f"{own[1]}: {program} has another {name} at {own[0]}")
                break
    return errors, len(places)


def self_test():
    one = "namespace dltrain {\nstruct Node {\n  int a;\n};\n}  // namespace dltrain\n"
    hidden = f"namespace dltrain {{\nnamespace {{\n{one.splitlines()[1]}\n}};\n}}  // namespace\n}}  // namespace dltrain\n"
    cases = [
        (0, {"lib/a/a.h": one, "lib/b/b.cpp": hidden, "kernels/cpu/c.h": "namespace dltrain {\nstruct Node;\n}  // namespace dltrain\n"}),
        (0, {"kernels/cpu/a.h": one, "kernels/cuda/b.h": one}),
        (1, {"lib/a/a.h": one, "lib/b/b.h": one.replace("struct Node {", "class Node : public Base {")}),
        (1, {"lib/a/a.h": one, "kernels/cuda/b.cu": one}),
    ]
    for expected, files in cases:
        with tempfile.TemporaryDirectory() as root:
            source_check.write_tree(root, files)
            errors, _ = check(root)
            if len(errors) != expected:
                sys.exit(f"self-test {sorted(files)}: {errors}")
    print(f"self-test: {len(cases)} cases as they should be")


source_check.main(check, self_test, "names of {} types")
