#!/usr/bin/env python3
"""Writes tests/golden/images: small pictures in the forms that image files take, and what Pillow makes of them.

    scripts/record_golden_images.py        needs Pillow and NumPy; the tests need neither

photo.*   one picture as JPEG (colour, gray, CMYK, progressive) and PNG (RGB, RGBA, palette, gray, 16 bits)
small.png, wide.png   photo.png resized by Pillow's bilinear filter (antialiased), to 24 x 20 and 90 x 31
jpeg.png  photo.jpg as Pillow decodes it
"""
import pathlib

import numpy as np
from PIL import Image

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests" / "golden" / "images"


def picture(height=48, width=64):
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    red = 127 + 120 * np.sin(x / 5) * np.cos(y / 9)
    green = 255 * (x + y) / (height + width)
    blue = np.where((x // 16 + y // 12) % 2 == 0, 220, 30)
    return Image.fromarray(np.stack([red, green, blue], axis=-1).round().clip(0, 255).astype(np.uint8))


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    photo = picture()
    photo.save(FOLDER / "photo.jpg", quality=92, subsampling=0)
    photo.save(FOLDER / "photo.progressive.jpg", quality=80, progressive=True)
    photo.convert("L").save(FOLDER / "photo.gray.jpg", quality=92)
    photo.convert("CMYK").save(FOLDER / "photo.cmyk.jpg", quality=92)
    photo.save(FOLDER / "photo.png")
    photo.convert("RGBA").save(FOLDER / "photo.rgba.png")
    photo.quantize(32).save(FOLDER / "photo.palette.png")
    photo.convert("L").save(FOLDER / "photo.gray.png")
    deep = np.asarray(photo.convert("L")).astype(np.uint16) * 257
    Image.fromarray(deep).save(FOLDER / "photo.16bit.png")
    photo.resize((24, 20), Image.BILINEAR).save(FOLDER / "small.png")
    photo.resize((90, 31), Image.BILINEAR).save(FOLDER / "wide.png")
    Image.open(FOLDER / "photo.jpg").convert("RGB").save(FOLDER / "jpeg.png")


if __name__ == "__main__":
    main()
