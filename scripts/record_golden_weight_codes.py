#!/usr/bin/env python3
"""Records codes of weights in NF4 and int8, for tests/tensor/weight_codes.cpp.

    python scripts/record_golden_weight_codes.py    (needs the packages bitsandbytes 0.50, torch and numpy)

Writes tests/golden/weight_codes.json: hashes of codes, scales and expanded values of bitsandbytes on the CPU. Weights are
a formula of their index and a salt. bitsandbytes sums the mean of double quantisation in f32 and finds some 8-bit codes
by a table with an error of 1e-5, so salts are taken for which that changes nothing: the mean is that of a float64 sum
rounded once, and every code of absmax the nearest one. int8 is its own rule in numpy, for bitsandbytes' takes f16 weights
on the CPU: round(127 / absmax * w), and code * absmax * (1/127).
"""
import json
import os

import bitsandbytes
import numpy
import torch
from bitsandbytes import functional


def weight(rows, columns, salt):
    i = numpy.arange(rows * columns, dtype=numpy.uint64)
    x = ((i * numpy.uint64(2654435761) + numpy.uint64(salt * 40503)) % numpy.uint64(2**32)).astype(numpy.float64) / 2.0**31 - 1
    row = (i // numpy.uint64(columns)).astype(numpy.float64)
    return (x * x * x * (1 + row % 5)).astype(numpy.float32).reshape(rows, columns)


def fnv(array):
    hashed = 14695981039346656037
    for byte in numpy.ascontiguousarray(array).tobytes():
        hashed = (hashed ^ byte) * 1099511628211 % 2**64
    return f"{hashed:016x}"


def nf4(rows, columns, salt, nested):
    w = torch.from_numpy(weight(rows, columns, salt))
    codes, state = functional.quantize_4bit(w, quant_type="nf4", compress_statistics=nested)
    parts = [codes.numpy(), state.absmax.numpy()]
    if nested:
        absmax = functional.quantize_4bit(w, quant_type="nf4", compress_statistics=False)[1].absmax.numpy()
        mean, scales, table = state.offset.numpy(), state.state2.absmax.numpy(), state.state2.code.numpy()
        relative = (absmax - mean) / numpy.repeat(scales, 256)[:absmax.size]
        nearest = numpy.abs(table[None, :] - relative[:, None]).argmin(axis=1)
        if mean != numpy.float32(absmax.astype(numpy.float64).mean()) or (nearest != parts[1]).any():
            return None
        parts.append(numpy.concatenate([mean.reshape(1), scales]))
    return parts, functional.dequantize_4bit(codes, state).numpy()


def int8(rows, columns, salt, _):
    w = weight(rows, columns, salt)
    absmax = numpy.abs(w).max(axis=1)
    codes = numpy.rint(w * (numpy.float32(127) / absmax)[:, None]).astype(numpy.int8)
    return [codes, absmax], codes.astype(numpy.float32) * absmax[:, None] * numpy.float32(1 / 127)


def record():
    cases = []
    for name, made in (("nf4", nf4), ("int8", int8)):
        for nested in (False, True) if name == "nf4" else (False,):
            for rows, columns in ((5, 30), (24, 70), (130, 256)):
                salt, found = 1, made(rows, columns, 1, nested)
                while found is None:
                    salt += 1
                    found = made(rows, columns, salt, nested)
                parts, values = found
                cases.append({"format": name, "double_quantization": nested, "rows": rows, "columns": columns, "salt": salt,
                              "parts": [fnv(part) for part in parts], "values": fnv(values)})
    return {"bitsandbytes": bitsandbytes.__version__, "torch": torch.__version__, "numpy": numpy.__version__, "cases": cases}


if __name__ == "__main__":
    path = os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "weight_codes.json")
    with open(path, "w") as file:
        json.dump(record(), file, indent=1)
        file.write("\n")
