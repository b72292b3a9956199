#!/usr/bin/env python3
"""Greedy generation of dltrain and transformers side by side: GPT-2's shape with random weights, interleaved.

    bench/compare_generation.py [--program build/dltrain] [--batch 1 4] [--precision f32 bf16] [--rounds 3]

Needs the pip packages torch, transformers and safetensors. In each round both sides get a prompt of --prompt tokens for
each text of the batch and generate --tokens new ones. Reported are the milliseconds per step (the least time of all without
the least time of the prompt), those of the prompt, and the ratio. In f32 the tokens of both sides must be equal. On a busy machine --cpu-time
with --threads 1 measures processor time in user mode instead; for dltrain this is the difference of runs with one and all tokens.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import torch
import transformers
from safetensors.torch import save_file

CONFIG = """
model: {{type: gpt2, num_layers: {layers}, hidden_size: {hidden}, num_heads: {heads}, vocab_size: {vocab},
         init_from: {weights}}}
data: {{type: synthetic, shape: [4], classes: 2, samples: 8}}
optimizer: {{type: sgd, learning_rate: 0.1}}
training: {{global_batch_size: 4, max_steps: 1}}
"""


def make_model(arguments):
    torch.manual_seed(1)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=arguments.layers, n_embd=arguments.hidden, n_head=arguments.hidden // 64, vocab_size=arguments.vocab, bos_token_id=None,
        eos_token_id=None)).eval()


def dltrain_once(arguments, folder, prompts, precision, tokens):
    """Returns seconds of the prompt and of all steps, the tokens, and the processor time of the process."""
    result = folder / "result.json"
    command = [arguments.program, "generate", folder / "gpt2.yaml", "--precision", precision, "--temperature", 0, "--max-tokens",
               tokens, "--batch-size", len(prompts), "--result", result, "--json", "--quiet"]
    for prompt in prompts:
        command += ["--tokens", ",".join(map(str, prompt))]
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = json.loads(result.read_text())
    cpu = after.ru_utime - before.ru_utime
    return out["prompt_seconds"], out["step_seconds"], [text["tokens"] for text in out["texts"]], cpu


def run_dltrain(arguments, folder, prompts, precision):
    """Returns times of the prompt and of prompt and steps, and the tokens."""
    prompt, steps, tokens, cpu = dltrain_once(arguments, folder, prompts, precision, arguments.tokens)
    if arguments.cpu_time:
        return dltrain_once(arguments, folder, prompts, precision, 1)[3], cpu, tokens
    return prompt, prompt + steps, tokens


@torch.inference_mode()
def run_transformers(arguments, model, prompts):
    """The same of generate() with one token and with all tokens."""
    def clock():
        return resource.getrusage(resource.RUSAGE_SELF).ru_utime if arguments.cpu_time else time.perf_counter()

    ids = torch.tensor(prompts)
    options = dict(do_sample=False, pad_token_id=0, eos_token_id=None, attention_mask=torch.ones_like(ids))
    begin = clock()
    model.generate(ids, max_new_tokens=1, **options)
    middle = clock()
    out = model.generate(ids, max_new_tokens=arguments.tokens, **options)
    end = clock()
    return middle - begin, end - middle, out[:, ids.shape[1]:].tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/dltrain")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--precision", nargs="+", default=["f32", "bf16"], choices=["f32", "bf16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--cpu-time", action="store_true")
    arguments = parser.parse_args()
    if arguments.cpu_time and arguments.threads != 1:
        parser.error("--cpu-time needs --threads 1")
    if arguments.tokens < 2:
        parser.error("--tokens needs 2 or more")
    torch.set_num_threads(arguments.threads)
    models = {"f32": make_model(arguments)}
    slower = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        weights = {key.removeprefix("transformer."): value.contiguous() for key, value in models["f32"].state_dict().items()
                   if key != "lm_head.weight"}
        save_file(weights, folder / "model.safetensors")
        (folder / "gpt2.yaml").write_text(CONFIG.format(layers=arguments.layers, hidden=arguments.hidden, heads=arguments.hidden // 64,
                                                        vocab=arguments.vocab, weights=folder / "model.safetensors"))
        if "bf16" in arguments.precision:
            models["bf16"] = make_model(arguments).to(torch.bfloat16)
        for precision in arguments.precision:
            for batch in arguments.batch:
                generator = torch.Generator().manual_seed(batch)
                prompts = torch.randint(arguments.vocab, (batch, arguments.prompt), generator=generator).tolist()
                best = {}
                for _ in range(arguments.rounds):
                    sides = {"dltrain": run_dltrain(arguments, folder, prompts, precision),
                             "transformers": run_transformers(arguments, models[precision], prompts)}
                    for side, times in sides.items():
                        best[side] = tuple(map(min, best.get(side, times), times[:2]))
                    if precision == "f32" and sides["dltrain"][2] != sides["transformers"][2]:
                        sys.exit(f"batch {batch}: the tokens of the two sides differ")
                best = {side: (prompt, (whole - prompt) / (arguments.tokens - 1)) for side, (prompt, whole) in best.items()}
                ratio = best["transformers"][1] / best["dltrain"][1]
                prompts_ms = {} if arguments.cpu_time else {
                    "ms_prompt": {side: round(1e3 * value[0], 1) for side, value in best.items()}}
                print(json.dumps({"precision": precision, "batch": batch, "threads": arguments.threads, "clock": "cpu" if arguments.cpu_time else "wall",
                                  "ms_a_step": {side: round(1e3 * value[1], 2) for side, value in best.items()},
                                  **prompts_ms, "transformers/dltrain": round(ratio, 3)}), flush=True)
                if ratio < 1:
                    slower.append((precision, batch))
    if slower:
        sys.exit(f"slower than transformers: {slower}")


if __name__ == "__main__":
    main()
