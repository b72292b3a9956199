#!/usr/bin/env python3
"""Trains configs/recipes/shakespeare-char-gpt.yaml with dltrain, and the same model with the same settings with plain
PyTorch, one after the other, and prints validation loss, wall time and processor time of each process. On a busy
machine compare processor times with --threads 1.

    bench/char_gpt.py --text data/tinyshakespeare/input.txt [--dtype f32|bf16] [--peers eager,compile] [--rounds 1]

Both: nanoGPT's recipe for a CPU at three times its learning rate (a GPT of 4 layers of width 128 without biases, sequences
of 64 characters, batches of 12, 2,000 steps of AdamW, warmup and cosine, clipping), and four evaluations on the last tenth
of the text. Random numbers differ. --python selects a Python with PyTorch (default: the environment variable TORCH_PYTHON,
or python3).
"""
import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS, HEADS, WIDTH, LENGTH, BATCH, STEPS, WARMUP, EVERY = 4, 4, 128, 64, 12, 2000, 100, 500
RATE, LEAST, BETAS, DECAY, CLIP, HELD_OUT = 3e-3, 3e-4, (0.9, 0.99), 0.1, 1.0, 0.1


def gpt(vocabulary):
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
            self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)
            for out in (self.project, self.down):
                out.depth_scaled = True

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = (z.view(b, t, HEADS, -1).transpose(1, 2) for z in self.qkv(self.norm1(x)).split(WIDTH, 2))
            heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.project(heads.transpose(1, 2).reshape(b, t, WIDTH))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(LENGTH, WIDTH)
            self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
            self.norm = nn.LayerNorm(WIDTH, bias=False)
            for m in self.modules():
                if isinstance(m, (nn.Linear, nn.Embedding)):
                    nn.init.normal_(m.weight, std=0.02 / (math.sqrt(2 * LAYERS) if hasattr(m, "depth_scaled") else 1))

        def forward(self, ids):
            x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
            for layer in self.layers:
                x = layer(x)
            return nn.functional.linear(self.norm(x), self.tokens.weight)

    return Gpt()


def train_torch(text, seed, threads, dtype, mode):
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    characters = sorted(set(text))
    ids = {c: i for i, c in enumerate(characters)}
    data = torch.tensor([ids[c] for c in text])
    split = len(data) - round(HELD_OUT * len(data))
    train, held_out = data[:split], data[split:]
    windows = (len(held_out) - 1) // LENGTH
    x_val, y_val = (held_out[a : a + windows * LENGTH].view(windows, LENGTH) for a in (0, 1))
    model = gpt(len(characters))
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": rest, "weight_decay": 0}], lr=RATE,
                                  betas=BETAS, fused=True)
    run = torch.compile(model) if mode == "compile" else model

    def loss_of(x, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            logits = run(x)
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), y.flatten())

    losses = []
    for step in range(STEPS):
        share = (step + 1) / WARMUP if step < WARMUP else None
        decayed = LEAST + 0.5 * (RATE - LEAST) * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))
        for group in optimizer.param_groups:
            group["lr"] = RATE * share if share else decayed
        starts = torch.randint(len(train) - LENGTH, (BATCH,))
        rows = starts[:, None] + torch.arange(LENGTH + 1)
        batch = train[rows]
        optimizer.zero_grad()
        loss_of(batch[:, :-1], batch[:, 1:]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        if (step + 1) % EVERY == 0:
            with torch.no_grad():
                total = sum(loss_of(x_val[i : i + BATCH], y_val[i : i + BATCH]).item() * len(x_val[i : i + BATCH])
                            for i in range(0, windows, BATCH))
            losses.append(total / windows)
    print(json.dumps(losses[-1]))


def timed(command, **keys):
    """Returns wall and processor seconds of a process, and its output."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **keys).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - begin, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, out


def run_dltrain(arguments, seed):
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [arguments.dltrain, "-q", "--config", "configs/recipes/shakespeare-char-gpt.yaml", "--seed", str(seed), "-s",
                   f"data.path={arguments.text}", "-s", f"precision.compute={arguments.dtype}", "--output-dir", f"{folder}/run",
                   "--result", str(result)]
        wall, busy, _ = timed(command, cwd=ROOT, env=dict(os.environ, OMP_NUM_THREADS=str(arguments.threads)))
        return wall, busy, json.loads(result.read_text())["eval_loss"]


def run_torch(arguments, mode, seed):
    command = [arguments.python, __file__, "--text", arguments.text, "--dtype", arguments.dtype, "--threads", str(arguments.threads),
               "--peer", mode, "--seed", str(seed)]
    wall, busy, out = timed(command)
    return wall, busy, json.loads(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--peers", default="eager", help="modes of PyTorch, separated by commas; empty: none")
    parser.add_argument("--python", default=os.environ.get("TORCH_PYTHON", "python3"), help="a Python with torch")
    parser.add_argument("--dltrain", default=str(ROOT / "build" / "dltrain"))
    parser.add_argument("--peer", help=argparse.SUPPRESS)  # runs the PyTorch side in this process
    arguments = parser.parse_args()
    arguments.text = os.path.abspath(arguments.text)
    if arguments.peer:
        text = Path(arguments.text).read_text(encoding="utf-8")
        return train_torch(text, arguments.seed, arguments.threads, arguments.dtype, arguments.peer)
    print(f"{STEPS} steps, {arguments.dtype}, {arguments.threads} threads")
    for i in range(arguments.rounds):
        seed = arguments.seed + i
        runs = [("dltrain", *run_dltrain(arguments, seed))]
        runs += [(f"PyTorch {mode}", *run_torch(arguments, mode, seed)) for mode in arguments.peers.split(",") if mode]
        for name, wall, busy, loss in runs:
            ratio = f" ({wall / runs[0][1]:.2f} and {busy / runs[0][2]:.2f} times dltrain's)" if name != "dltrain" else ""
            print(f"seed {seed}: {name:16} {wall:6.1f} s, {busy:6.1f} s of processor time{ratio}, validation loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
