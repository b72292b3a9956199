#!/usr/bin/env python3
"""Prints what `dltrain plan` predicts for published runs of large language models beside their results (docs/scale.md).

  scripts/scale_table.py [--dltrain build/dltrain] [--configs configs/scale] [--match TEXT]
"""
import argparse
import concurrent.futures
import os
import re
import statistics
import subprocess
import sys

# Bytes per second of a GPU within a node and between nodes: 80 % of NVLink's peak and 90 % of the network's.
A100 = ("a100-80g", "2.4e11", "2.25e10")
H100 = ("h100-80g", "3.6e11", "4.5e10")
TITAN = ("{configs}/h100_96g_500w.yaml", *H100[1:])
LLAMA_70B = ["model.num_layers=80", "model.hidden_size=8192", "model.num_heads=64", "model.intermediate_size=28672"]
# The published run gave the embedding and the head stages of their own, and so each of the 126 layers.
LLAMA_405B = ["model.num_layers=126", "model.hidden_size=16384", "model.num_heads=128", "model.intermediate_size=53248",
              "parallelism.pipeline_schedule=interleaved", "parallelism.virtual_stages=8",
              f"parallelism.pipeline_stages=[{','.join(f'model.layers.{i}' for i in range(126))},model.norm]"]

# Table 1 of Narayanan and others 2021: parameters in billions, heads, width, layers, tensor, pipeline, GPUs, batch, TFLOP/s of
# a GPU with the arithmetic of recomputation. Micro-batches are not given there; they are of one sample here.
MEGATRON = [
    (1.7, 24, 2304, 24, 1, 1, 32, 512, 137), (3.6, 32, 3072, 30, 2, 1, 64, 512, 138),
    (7.5, 32, 4096, 36, 4, 1, 128, 512, 142), (18.4, 48, 6144, 40, 8, 1, 256, 1024, 135),
    (39.1, 64, 8192, 48, 8, 2, 512, 1536, 138), (76.1, 80, 10240, 60, 8, 4, 1024, 1792, 140),
    (145.6, 96, 12288, 80, 8, 8, 1536, 2304, 148), (310.1, 128, 16384, 96, 8, 16, 1920, 2160, 155),
    (529.6, 128, 20480, 105, 8, 35, 2520, 2520, 163), (1008, 160, 25600, 128, 8, 64, 3072, 3072, 163),
]


def megatron_row(billions, heads, width, layers, tensor, pipeline, gpus, batch, tflops):
    # Equation 3 there, per token; published are TFLOP/s, so tokens/s follow.
    flops = 96 * layers * width**2 * (1 + 2048 / (6 * width) + 51200 / (16 * layers * width))
    settings = [f"model.num_layers={layers}", f"model.hidden_size={width}", f"model.num_heads={heads}",
                f"training.global_batch_size={batch}"]
    return {"model": f"GPT {billions}B", "gpus": gpus, "gpu": A100, "config": "gpt_megatron", "tensor": tensor, "pipeline": pipeline,
            "zero": 0, "micro": 1, "settings": settings, "rate": 1e12 * tflops / flops, "memory": None, "source": "Megatron-LM"}


def llama_row(model, sizes, gpus, layout, batch, micro, recompute, rate, memory, gpu, source):
    tensor, pipeline, zero = layout
    settings = [*sizes, f"training.global_batch_size={batch}", f"memory.recompute={recompute}"]
    if tensor > 1:  # torchtitan always has it, and the largest models fit their GPUs with it only; products were whole
        settings += ["parallelism.sequence_parallel=true", "parallelism.product_pieces=1"]
    return {"model": f"Llama 3 {model}", "gpus": gpus, "gpu": gpu, "config": "llama3", "tensor": tensor, "pipeline": pipeline,
            "zero": zero, "micro": micro, "settings": settings, "rate": rate, "memory": memory, "source": source}


# torchtitan's bf16 rows (benchmarks/llama3_h100_202412_torchtitan.md, asyncTP_llama3_h100_2025-06_torchtitan.md; without
# asynchronous tensor parallelism), and Llama 3 405B (Grattafiori and others 2024, table 4), whose rate is that of its TFLOP/s
# by its 2.46e12 FLOP of a token.
ROWS = [megatron_row(*row) for row in MEGATRON] + [
    llama_row("8B", [], 8, (1, 1, 3), 16, 2, "selective", 6667, 77.0, TITAN, "torchtitan, fitted"),
    llama_row("8B", [], 128, (1, 1, 3), 256, 2, "selective", 6514, 62.0, TITAN, "torchtitan"),
    llama_row("8B", [], 64, (8, 1, 3), 96, 12, "selective", 4378, None, TITAN, "torchtitan"),
    llama_row("70B", LLAMA_70B, 256, (8, 1, 3), 512, 16, "full", 597.3, None, TITAN, "torchtitan"),
    llama_row("405B", LLAMA_405B, 8192, (8, 16, 1), 2048, 1, "none", 430e12 / 2.46e12, None, H100, "Llama 3"),
    llama_row("405B", LLAMA_405B, 16384, (8, 16, 1), 2048, 1, "none", 400e12 / 2.46e12, None, H100, "Llama 3"),
]


def plan(options, row):
    settings = [*row["settings"], f"training.micro_batch_size={row['micro']}", f"parallelism.tensor={row['tensor']}",
                f"parallelism.pipeline={row['pipeline']}", f"parallelism.zero_stage={row['zero']}"]
    command = [options.dltrain, "plan", f"{options.configs}/{row['config']}.yaml", "--world", str(row["gpus"]), "--nproc-per-node", "8"]
    gpu, link, node_link = row["gpu"]
    command += ["--gpu", gpu.format(configs=options.configs), "--link", link]
    command += ["--node-link", node_link] if row["gpus"] > 8 else []
    command += [word for setting in settings for word in ("-s", setting)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode not in (0, 5):  # 5: does not fit, which the table says
        sys.exit(result.stderr)
    out = result.stdout
    rate = float(re.search(r"step [\d.]+ ms, ([\d.]+) tokens/s", out)[1]) / row["gpus"]
    memory, verdict = re.search(r"memory ([\d.]+) of .*: (.*)", out).groups()
    return rate, float(memory), verdict


def shown(rate):
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dltrain", default="build/dltrain")
    parser.add_argument("--configs", default="configs/scale")
    parser.add_argument("--match", default="", help="only rows whose model or source contains this text")
    options = parser.parse_args()
    print("| model | GPUs | tensor × pipeline × data, ZeRO | published | predicted | error | GiB published | GiB predicted | source |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---|")
    errors = []
    rows = [row for row in ROWS if options.match in row["model"] + " " + row["source"]]
    pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
    for row, (rate, memory, verdict) in zip(rows, pool.map(lambda row: plan(options, row), rows)):
        error = rate / row["rate"] - 1
        if "fitted" not in row["source"]:
            errors.append(abs(error))
        data = row["gpus"] // (row["tensor"] * row["pipeline"])
        fits = "" if verdict == "fits" else ", does not fit"
        print(f"| {row['model']} | {row['gpus']:,} | {row['tensor']} × {row['pipeline']} × {data}, {row['zero']} | {shown(row['rate'])} | "
              f"{shown(rate)} | {100 * error:+.0f} % | {row['memory'] or '–'} | {memory}{fits} | {row['source']} |", flush=True)
    if errors:
        print(f"\nTokens per second and GPU. Of {len(errors)} rows the median error is {100 * statistics.median(errors):.0f} %, "
              f"the largest {100 * max(errors):.0f} %.")


if __name__ == "__main__":
    main()
