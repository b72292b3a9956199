"""Shared by the checks of the source tree (check_includes.py, check_names.py)."""
import os
import sys


def write_tree(root, files):
    """Writes {path: text} below root."""
    for path, text in files.items():
        os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text)


def main(check, self_test, what):
    """Runs the command line [ROOT] or --self-test. check(root) returns all violations and the number of checked items."""
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    errors, count = check(os.path.abspath(root))
    print("\n".join(errors + [f"{what.format(count)} checked: {len(errors)} violations"]))
    sys.exit(1 if errors or count == 0 else 0)
