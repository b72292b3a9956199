#!/usr/bin/env python3
"""Writes the data of docs/comparison.md into a folder: a table with text labels, one with bad cells, new rows without labels, a text,
prompts with answers, and photographs as PNG. It needs data/breast-cancer.csv (scripts/prepare_tables.sh) and no packages.

    bench/comparison/prepare.py FOLDER
"""
import json
import pathlib
import random
import struct
import sys
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIDE = 1000  # of a photograph, in pixels


def png(pixels):
    """An RGB image from rows of bytes."""
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = struct.pack(">2I5B", len(pixels[0]) // 3, len(pixels), 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in pixels), 1)) + chunk(b"IEND", b"")


def main(folder):
    lines = pathlib.Path("data/breast-cancer.csv").read_text().splitlines()
    (folder / "patients.csv").write_text("\n".join(lines) + "\n")
    (folder / "new.csv").write_text("\n".join(line.rpartition(",")[0] for line in lines[:6]) + "\n")
    rows = [line.split(",") for line in lines]
    for row, column, cell in (9, 3, ""), (40, 6, "twelve"), (60, 30, ""), (80, 1, "inf"), (100, 2, "12.3x"):
        rows[row - 1][column] = cell
    rows[76].pop()  # line 77
    (folder / "bad.csv").write_text("\n".join(map(",".join, rows)) + "\n")

    text = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "scripts").glob("*.py")))
    (folder / "text.txt").write_text("".join(c for c in text if c.isascii())[:100_000])
    answers = [{"prompt": f"# {a} + {b} is ", "completion": f"{a + b}."} for a in range(8) for b in range(8)]
    (folder / "answers.jsonl").write_text("\n".join(map(json.dumps, answers)) + "\n")

    draw = random.Random(0)
    for kind, channel in ("left", 0), ("right", 2):
        (folder / "photos" / kind).mkdir(parents=True, exist_ok=True)
        for i in range(32):
            grain = draw.randbytes(3 * SIDE)
            row = bytes(128 + grain[x] // 2 if x % 3 == channel else grain[x] // 2 for x in range(3 * SIDE))
            (folder / "photos" / kind / f"{i}.png").write_bytes(png([row[3 * y:] + row[:3 * y] for y in range(SIDE)]))


main(pathlib.Path(sys.argv[1]))
