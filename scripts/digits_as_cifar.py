#!/usr/bin/env python3
"""Writes the digits of data/digits.csv.gz as CIFAR-10's binary files: what small-image networks are made for, without
a download.

    scripts/digits_as_cifar.py [DIGITS.csv.gz [FOLDER]]     (default: data/digits.csv.gz, data/digits-cifar)

Images of 8 x 8 become 32 x 32 (bilinear, corners on corners), grey in all three planes. data_batch_1.bin to
data_batch_5.bin hold the first 1,437, test_batch.bin the last 360: the split of every digits recipe.
"""
import csv
import gzip
import os
import sys

TEST, FILES, SIZE, LARGE = 360, 5, 8, 32


def enlarged(pixels):
    """64 grey values from 0 to 16 as 1,024 bytes."""
    places = [i * (SIZE - 1) / (LARGE - 1) for i in range(LARGE)]
    lines = [(min(int(p), SIZE - 2), p - min(int(p), SIZE - 2)) for p in places]
    out = bytearray()
    for y, v in lines:
        for x, u in lines:
            corner = [pixels[(y + dy) * SIZE + x + dx] for dy in (0, 1) for dx in (0, 1)]
            value = (corner[0] * (1 - u) + corner[1] * u) * (1 - v) + (corner[2] * (1 - u) + corner[3] * u) * v
            out.append(min(255, round(value * 255 / 16)))
    return bytes(out)


def main():
    source = sys.argv[1] if len(sys.argv) > 1 else "data/digits.csv.gz"
    folder = sys.argv[2] if len(sys.argv) > 2 else "data/digits-cifar"
    with gzip.open(source, "rt") as file:
        rows = [[int(value) for value in row] for row in csv.reader(file)]
    records = [bytes([row[-1]]) + 3 * enlarged(row[:-1]) for row in rows]
    os.makedirs(folder, exist_ok=True)
    train, share = records[:-TEST], -(-(len(records) - TEST) // FILES)
    parts = {f"data_batch_{i + 1}.bin": train[i * share:(i + 1) * share] for i in range(FILES)}
    parts["test_batch.bin"] = records[-TEST:]
    for name, part in parts.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(b"".join(part))
    print(f"{folder}: {len(train)} digits to train on, {TEST} to test on")


main()
