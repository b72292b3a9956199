#!/usr/bin/env python3
"""Records TF32 operands and a TF32 product, for tests/ops/tf32.cpp.

    python scripts/record_golden_tf32.py        (needs the package numpy)

Writes tests/golden/tf32.json. The rounding is that of PTX's cvt.rna.tf32.f32: to the nearest number with 10
bits of fraction, ties away from zero. It is computed here from the values, in float64 by frexp and floor, and not
from the bits: mantissa and exponent are taken apart, the mantissa is rounded and both are put together. The
product is the float64 sum of the products of rounded operands, which are exact in float64.
"""
import json
import os

import numpy


def to_tf32(x):
    wide = x.astype(numpy.float64)
    mantissa, exponent = numpy.frexp(wide)  # 0.5 <= |mantissa| < 1
    digits = numpy.where(exponent < -125, 11 + exponent + 125, 11)  # subnormal f32 have fewer
    scale = numpy.ldexp(1.0, digits)
    rounded = numpy.sign(mantissa) * numpy.floor(numpy.abs(mantissa) * scale + 0.5) / scale
    out = numpy.ldexp(rounded, exponent)
    with numpy.errstate(over="ignore"):
        return numpy.copysign(numpy.where(numpy.isfinite(wide), out, wide), wide).astype(numpy.float32)


def bits(x):
    return [int(b) for b in x.astype(numpy.float32).view(numpy.uint32).ravel()]


def main():
    generator = numpy.random.Generator(numpy.random.PCG64(22))
    anything = generator.integers(0, 2**32, 256, dtype=numpy.uint32).view(numpy.float32)
    ties = numpy.array([0x3F801000, 0xBF801000, 0x3F803000, 0x3F800FFF, 0x3F801001, 0x3FFFF000], numpy.uint32)
    borders = numpy.array([0x00000000, 0x80000000, 0x00000001, 0x00001000, 0x007FFFFF, 0x7F7FFFFF, 0x7F800000,
                           0xFF800000], numpy.uint32)
    x = numpy.concatenate([anything[~numpy.isnan(anything)], ties.view(numpy.float32), borders.view(numpy.float32)])
    a = generator.standard_normal((3, 40)).astype(numpy.float32)
    b = generator.standard_normal((40, 5)).astype(numpy.float32)
    product = to_tf32(a).astype(numpy.float64) @ to_tf32(b).astype(numpy.float64)
    record = {"numpy": numpy.__version__, "x": bits(x), "rounded": bits(to_tf32(x)), "a": bits(a), "b": bits(b),
              "product": [float(v) for v in product.ravel()]}
    path = os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "tf32.json")
    with open(path, "w") as file:
        json.dump(record, file)
        file.write("\n")


main()
