#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets that read binary files: tests/fuzz/seeds/
{idx,cifar,npy,image,packed,tokenizer,jsonl,tokens}.

    scripts/record_fuzz_seeds.py [DLTRAIN]     needs NumPy, Pillow and the executable (default build/dltrain)

Small, one file a kind of content; the first byte of idx, cifar and image seeds is the target's own.
"""
import io
import json
import pathlib
import struct
import subprocess
import sys
import tarfile
import tempfile

import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[1]
SEEDS = ROOT / "tests" / "fuzz" / "seeds"
IMAGES = ROOT / "tests" / "golden" / "images"


def write(target, name, content):
    path = SEEDS / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def idx():
    labels = struct.pack(">BBBBI", 0, 0, 8, 1, 3) + bytes([1, 0, 7])
    images = struct.pack(">BBBBIII", 0, 0, 8, 3, 3, 2, 4) + bytes(range(24))
    colours = struct.pack(">BBBBIIII", 0, 0, 8, 4, 3, 1, 2, 3) + bytes(range(18))
    write("idx", "gray", bytes([len(labels)]) + labels + images)
    write("idx", "colour", bytes([len(labels)]) + labels + colours)


def cifar():
    def archive(files):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return buffer.getvalue().rstrip(b"\0") + bytes(1024)

    record = bytes([1]) + bytes(i % 251 for i in range(3072))
    write("cifar", "test10", bytes([6]) + archive({"cifar-10-batches-bin/test_batch.bin": record}))
    fine = bytes([2, 50]) + record[1:]
    write("cifar", "train100", bytes([1]) + archive({"train.bin": fine, "fine_label_names.txt": b"a\nb\n"}))


def npy():
    for name, array in (("f4", np.arange(6, dtype=np.float32).reshape(2, 3)), ("u1", np.arange(5, dtype=np.uint8)),
                        ("i8", np.array(3)), ("fortran", np.asfortranarray(np.ones((2, 3))))):
        buffer = io.BytesIO()
        np.save(buffer, array)
        write("npy", name, buffer.getvalue())


def image():
    small = Image.open(IMAGES / "small.png").convert("RGB")
    for name, first, kind, options in (("jpeg", 3, "JPEG", {}), ("progressive", 5, "JPEG", {"progressive": True}),
                                       ("png", 3, "PNG", {})):
        buffer = io.BytesIO()
        small.save(buffer, kind, **options)
        write("image", name, bytes([first]) + buffer.getvalue())
    for name, mode, kind in (("cmyk", "CMYK", "JPEG"), ("gray", "L", "JPEG"), ("palette", "P", "PNG"), ("rgba", "RGBA", "PNG")):
        buffer = io.BytesIO()
        small.convert(mode).save(buffer, kind)
        write("image", name, bytes([1]) + buffer.getvalue())


def packed(program):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for name in ("a", "b"):
            (folder / "data" / name).mkdir(parents=True)
        Image.new("RGB", (3, 2), (9, 8, 7)).save(folder / "data" / "a" / "1.png")
        Image.new("RGB", (2, 2), (1, 2, 3)).save(folder / "data" / "b" / "2.jpg")
        (folder / "c.yaml").write_text(
            f"model: {{layers: [flatten, {{linear: 2}}]}}\noptimizer: {{type: sgd, learning_rate: 0.1}}\ntraining: {{global_batch_size: 1, max_steps: 1}}\n"
            f"data: {{type: image_folder, path: {folder}/data, transforms: [{{resize: [2, 2]}}]}}\n")
        for encoding in ("original", "raw"):
            subprocess.run([program, "data", "prepare", str(folder / "c.yaml"), "--encoding", encoding, "--overwrite", "-o",
                            str(folder / "out")], check=True, capture_output=True)
            write("packed", encoding, (folder / "out").read_bytes())


def tokenizer():
    def own(**about):
        return (json.dumps({"format": "dltrain.tokenizer", "version": 1, **about}) + "\n").encode()

    letters = "\n !\"$&',-.3:;?ABCabcdefghijklmnopqrstuvwxyz_{}[]0123456789<>|\\"
    write("tokenizer", "char", own(type="char", alphabet=letters, special_tokens=["<|endoftext|>"]))
    write("tokenizer", "byte", own(type="byte", special_tokens=["<mask>", "a"]))
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    alphabet = {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}
    vocab = {alphabet[b]: b for b in range(256)}
    vocab.update({token: 256 + i for i, token in enumerate(["th", "the", "\u0120the", "in"])})
    pattern = r"(?i:'s|'t)|[^\r\n\p{L}]?\p{L}+|\s+(?!\S)|\s+"
    write("tokenizer", "bpe", json.dumps({
        "version": "1.0",
        "added_tokens": [{"id": 260, "content": "<|endoftext|>", "special": True, "lstrip": True, "rstrip": True},
                         {"id": 261, "content": "  ", "special": False}],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]},
        "model": {"type": "BPE", "ignore_merges": True, "vocab": vocab,
                  "merges": ["t h", "th e", ["\u0120", "the"], "i n"]}}, ensure_ascii=False).encode())
    write("tokenizer", "small", json.dumps({
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}}).encode())


def jsonl():
    write("jsonl", "documents", b'\0{"a": "one"}\n\n{"a": "tw\\u00e9", "n": [1, {}]}\n')
    write("jsonl", "pairs", b'\1{"a": "q", "b": "answer"}\n{"a": "", "b": "longer than it fits"}\n')
    write("jsonl", "chats", b'\x08{"a": [{"role": "user", "content": "q"}, {"role": "assistant", "content": [{"type": "text", "text": "b"}]}]}\n'
                            b'{"a": [{"from": "system", "value": "s"}, {"from": "gpt", "value": ""}]}\n')
    write("jsonl", "sources", b'\3{"a": "source text", "b": "target"}\n')


def tokens():
    def header(magic, version, count):
        return struct.pack("<256i", magic, version, count, *([0] * 253))

    write("tokens", "header", b"\0" + header(20240520, 1, 3) + struct.pack("<3H", 1, 2, 65535))
    write("tokens", "wide", b"\x0b" + header(20240801, 7, 2) + struct.pack("<2I", 1, 999))
    write("tokens", "raw16", b"\1" + struct.pack("<4H", 1, 2, 3, 4))
    write("tokens", "raw32", b"\2" + struct.pack("<2I", 1, 70000))
    write("tokens", "about", b'\4{"format": "dltrain.tokens", "version": 1, "vocab_size": 65, "tokenizer": "00"}\n')


def main():
    tokenizer()
    jsonl()
    tokens()
    idx()
    cifar()
    npy()
    image()
    packed(sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build" / "dltrain"))


if __name__ == "__main__":
    main()
