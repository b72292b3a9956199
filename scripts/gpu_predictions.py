#!/usr/bin/env python3
"""Prints what the cost model predicts for the target models on a GPU beside their goals (docs/gpu/predictions.md).

  scripts/gpu_predictions.py [--dltrain build/dltrain] [--gpu h100-80g] [--configs configs/gpu]
"""
import argparse
import re
import subprocess
import sys

# Configuration, model, tokens of a sample (1: samples are counted), goal on one H100 and its unit.
TARGETS = [
    ("gpt2_124m", "GPT-2 124M, B = 64, T = 1024", 1, 560e3, "tokens/s"),
    ("gpt2_124m_b16", "GPT-2 124M, B = 16, T = 1024", 1, None, "tokens/s"),
    ("gpt2_xl", "GPT-2 1.5B, B = 16, T = 1024", 1, 55e3, "tokens/s"),
    ("qwen2_5_1_5b", "shape of Qwen 2.5 1.5B, B = 8, T = 1024", 1, 60e3, "tokens/s"),
    ("bert_large", "BERT large, B = 64, T = 512, no dropout", 512, 430, "sequences/s"),
    ("resnet50", "ResNet-50, B = 256", 1, 5500, "images/s"),
    ("char_lstm", "LSTM of characters, B = 64, T = 128", 1, None, "tokens/s"),
]


def plan(options, name):
    command = [options.dltrain, "plan", f"{options.configs}/{name}.yaml", "--gpu", options.gpu]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode not in (0, 5):  # 5: does not fit, which the table says
        sys.exit(result.stderr)
    out = result.stdout
    step, rate, mfu = map(float, re.search(r"step ([\d.]+) ms, ([\d.]+) \S+, MFU ([\d.]+) %", out).groups())
    return step, rate, mfu, re.search(r"memory ([\d.]+) of", out)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dltrain", default="build/dltrain")
    parser.add_argument("--gpu", default="h100-80g")
    parser.add_argument("--configs", default="configs/gpu")
    options = parser.parse_args()
    print("| model | step, ms | MFU, % | GiB | predicted | goal | predicted / goal |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, model, tokens, goal, unit in TARGETS:
        step, rate, mfu, gib = plan(options, name)
        rate /= tokens
        wanted = f"{goal:,.0f} | {rate / goal:.2f}" if goal else "– | –"
        print(f"| {model} | {step:.1f} | {mfu:.1f} | {gib} | {rate:,.0f} {unit} | {wanted} |")


if __name__ == "__main__":
    main()
