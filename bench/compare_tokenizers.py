#!/usr/bin/env python3
"""Byte-level BPE of dltrain, tiktoken and tokenizers on one core, with the same merges, interleaved.

    bench/compare_tokenizers.py TEXT [--program build/bench_text] [--vocab 16384] [--rounds 3]

Needs the pip packages tiktoken and tokenizers. The merges are trained on TEXT with GPT-2's pattern. Each side
reports its best rate over the rounds, by processor time; the tokens of all three must be equal.
"""
import argparse
import array
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import zlib

import tiktoken
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def train(text, size):
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    return tokenizer


def as_tiktoken(tokenizer):
    own = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    others = [b for b in range(256) if b not in own]
    decoder = {**{chr(b): b for b in own}, **{chr(256 + i): b for i, b in enumerate(others)}}
    ranks = {bytes(decoder[c] for c in token): id for token, id in tokenizer.get_vocab().items()}
    return tiktoken.Encoding("bench", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={})


def rate(encode, text):
    begin = time.thread_time()
    ids = encode(text)
    speed = len(text.encode()) / (time.thread_time() - begin) / 1e6
    return speed, len(ids), zlib.crc32(array.array("i", ids).tobytes())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--program", default="build/bench_text")
    parser.add_argument("--vocab", type=int, default=16384)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    text = arguments.text.read_text()
    hugging_face = train(text, arguments.vocab)
    peer = as_tiktoken(hugging_face)
    best, tokens = {}, {}

    def note(name, value):
        best[name] = max(best.get(name, 0), value[0])
        tokens[name] = value[1:]  # their number and the checksum of their ids

    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "tokenizer.json").write_text(hugging_face.to_str())
        for _ in range(arguments.rounds):
            out = subprocess.run([arguments.program, folder, str(arguments.text), "2"], check=True, capture_output=True, text=True).stdout.split()
            note("dltrain", (float(out[2]), int(out[0]), int(out[-1], 16)))
            note("tiktoken", rate(peer.encode_ordinary, text))
            note("tokenizers", rate(lambda t: hugging_face.encode(t).ids, text))
    print(json.dumps({"bytes": len(text.encode()), "vocab": arguments.vocab, "MB/s": best, "tokens": tokens}))
    if len(set(tokens.values())) != 1:
        sys.exit("the three sides give different tokens")
    print(f"dltrain / tiktoken: {best['dltrain'] / best['tiktoken']:.2f}")


if __name__ == "__main__":
    main()
