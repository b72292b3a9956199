#!/usr/bin/env python3
"""Makes pairs of texts for an encoder and a decoder: numbers and their names, "40321" and "forty thousand three hundred
twenty-one".

    scripts/number_words.py [--output data/number-words] [--count 20000]

Writes train.jsonl and eval.jsonl with the keys `digits` and `words`; one number in twenty is in eval.jsonl, and no number
is in both. The numbers are the same in every run.
"""
import argparse
import json
import pathlib
import random

ONES = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
        "eighteen nineteen").split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def below_thousand(n):
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10 - 2] + ("-" + ONES[n % 10] if n % 10 else "")
    return ONES[n // 100] + " hundred" + (" " + below_thousand(n % 100) if n % 100 else "")


def words(n):
    if n < 1000:
        return below_thousand(n)
    return below_thousand(n // 1000) + " thousand" + (" " + below_thousand(n % 1000) if n % 1000 else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("data/number-words"))
    parser.add_argument("--count", type=int, default=20000, help="how many of the numbers below one million")
    arguments = parser.parse_args()
    if not 20 <= arguments.count <= 1000000:
        parser.error("--count is 20 to 1000000")
    numbers = random.Random(1).sample(range(1000000), arguments.count)
    arguments.output.mkdir(parents=True, exist_ok=True)
    held_out = arguments.count // 20
    for name, part in (("eval", numbers[:held_out]), ("train", numbers[held_out:])):
        with open(arguments.output / f"{name}.jsonl", "w", encoding="utf-8") as file:
            for n in part:
                file.write(json.dumps({"digits": str(n), "words": words(n)}) + "\n")


main()
