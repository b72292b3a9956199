#!/usr/bin/env python3
"""Checks that type names are unique within a program, and names in unnamed namespaces within a library.

    scripts/check_names.py [ROOT]        checks lib/, kernels/ and apps/; exit 1 on a violation
    scripts/check_names.py --self-test   checks that violations are found

Two classes dltrain::Node in headers that no source includes together compile and link, but the linker uses
one of the two destructors for both, which corrupts the heap (C++'s one-definition
rule; no diagnostic is required). The CUDA plug-in counts as a separate program.

Names used by one source only are in an unnamed namespace. Several sources of a library are compiled as one
unit (cmake/targets.cmake), so these names must be unique within a library, except for overloads in one source. They
must also differ from the constants and functions of the library's headers, which they would hide from the rest of the unit.
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
# clang-format puts types of a namespace in the first column.
TYPE = re.compile(r"(?:struct|class|enum class|enum|union)\s+(?:\[\[\w+\]\]\s+|alignas\([^)]*\)\s+)?([\w:]+)\s*(?:final\s*)?(?::(?!:)[^;]*)?\{")


# Functions and variables: the first name before a parenthesis, an initial value or the end of the declaration.
HIDDEN = re.compile(r"(?:[\w:<>,*&\[\]]+\s+)+[*&]?(\w+)\s*(?:\[[^\]]*\])*\s*(?:\(|=|\{|;)")
ALIAS = re.compile(r"using (\w+) =")
# Constants and functions of headers; clang-format puts them in the first column.
SHOWN = re.compile(r"(?! )(?:(?:(?:inline|constexpr|extern|const) )+[\w:<>,* ]*?[ *&](k[A-Z]\w*)\b|(?!using|typedef|return)[\w:<>,*& ]+[ *&](\w+)\()")
NO_DECLARATION = re.compile(r"(using|template|return|namespace|typedef|extern|static_assert|public|private|case|else)\b")


def hidden(text):
    """Yields (line, name) of each declaration in an unnamed namespace."""
    stack = []
    for number, line in enumerate(text.splitlines(), 1):
        opened = OPEN.match(line)
        if opened:
            stack.append(opened[1])
        elif CLOSE.match(line) and stack:
            stack.pop()
        elif "" in stack:
            found = ALIAS.match(line) or TYPE.match(line)
            if not found and not NO_DECLARATION.match(line):
                found = HIDDEN.match(line)
            if found:
                yield number, found[1]


def types(text):
    """Yields (line, qualified name) of each type definition outside unnamed namespaces."""
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


def shown(text):
    """Yields (line, name) of each constant and function at namespace scope of a header."""
    for number, line in enumerate(text.splitlines(), 1):
        found = SHOWN.match(line)
        if found:
            yield number, found[1] or found[2]


def check(root):
    """Returns all violations and the number of types."""
    places = collections.defaultdict(list)
    hiding = collections.defaultdict(dict)  # library and name → the first place in each source
    showing = {}  # the same for names of headers → a place
    for top in ("lib", "kernels", "apps"):
        for path, _, names in sorted(os.walk(os.path.join(root, top))):
            for name in sorted(names):
                if name.endswith((".h", ".cpp", ".cu", ".cuh")):
                    with open(os.path.join(path, name), encoding="utf-8") as file:
                        text = file.read()
                    relative = os.path.relpath(os.path.join(path, name), root)
                    for line, type_name in types(text):
                        places[type_name].append(f"{relative}:{line}")
                    library = "/".join(relative.split("/")[:2])
                    if name.endswith(".cpp") and library != "kernels/cuda" and "foreach_target.h" not in text:
                        for line, hidden_name in hidden(text):
                            hiding[library, hidden_name].setdefault(relative, line)
                    elif name.endswith(".h") and library != "kernels/cuda" and "HWY_TARGET_TOGGLE" not in text:
                        for line, shown_name in shown(text):
                            showing[library, shown_name] = f"{relative}:{line}"
    errors = []
    for name, all_places in sorted(places.items()):
        for program, folders in PROGRAMS.items():
            own = [place for place in all_places if place.startswith(folders)]
            if len(own) > 1:
                errors.append(f"{own[1]}: {program} has another {name} at {own[0]}")
                break
    for key, place in sorted(showing.items()):
        for source, line in hiding.get(key, {}).items():
            errors.append(f"{source}:{line}: {key[1]} hides that of {place} from other sources of the unit")
    for (library, name), sources in sorted(hiding.items()):
        if len(sources) > 1:
            first, second = list(sources.items())[:2]
            errors.append(f"{second[0]}:{second[1]}: {library} has another {name} in an unnamed namespace at {first[0]}:{first[1]}")
    return errors, len(places)


def self_test():
    one = "namespace dltrain {\nstruct Node {\n  int a;\n};\n}  // namespace dltrain\n"
    hidden = f"namespace dltrain {{\nnamespace {{\n{one.splitlines()[1]}\n}};\n}}  // namespace\n}}  // namespace dltrain\n"
    helper = "namespace dltrain {\nnamespace {\nint helper(int a) {\n}\n}  // namespace\n}  // namespace dltrain\n"
    cases = [
        (0, {"lib/a/a.h": one, "lib/b/b.cpp": hidden, "kernels/cpu/c.h": "namespace dltrain {\nstruct Node;\n}  // namespace dltrain\n"}),
        (0, {"kernels/cpu/a.h": one, "kernels/cuda/b.h": one}),
        (1, {"lib/a/a.h": one, "lib/b/b.h": one.replace("struct Node {", "class Node : public Base {")}),
        (1, {"lib/a/a.h": one, "kernels/cuda/b.cu": one}),
        (0, {"lib/a/a.cpp": helper, "lib/b/b.cpp": helper}),
        (1, {"lib/a/a.cpp": helper, "lib/a/b.cpp": helper}),
        (1, {"lib/a/a.cpp": helper, "lib/a/a.h": "int helper(int a);\n", "lib/b/b.h": "int helper(int a);\n"}),
        (1, {"lib/a/a.cpp": helper.replace("int helper(int a) {\n}", "constexpr int kMost = 2;"), "lib/a/a.h": "inline constexpr int kMost = 3;\n"}),
        (1, {f"lib/a/{name}.cpp": f"namespace {{\nusing Json = {name};\n}}  // namespace\n" for name in "ab"}),
    ]
    for expected, files in cases:
        with tempfile.TemporaryDirectory() as root:
            source_check.write_tree(root, files)
            errors, _ = check(root)
            if len(errors) != expected:
                sys.exit(f"self-test {sorted(files)}: {errors}")
    print(f"self-test: {len(cases)} cases passed")


source_check.main(check, self_test, "names of {} types")
