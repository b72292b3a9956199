#!/usr/bin/env python3
"""Records a small transformer head in PyTorch: class token, learned positions, torch.nn.MultiheadAttention.

    python scripts/record_golden_attention.py        (needs the packages torch and safetensors)

Batches are those of tests/golden/mlp, a sample cut into 5 tokens of 4. Writes tests/golden/attention:
weights.safetensors, and losses.json with loss and gradient norm of 20 steps of AdamW in f32 and f64, for
attention of all tokens (vit) and of earlier ones only (causal).
"""
import json
import os

import torch
from safetensors.torch import load_file, save_file
from torch import nn

HERE = os.path.join(os.path.dirname(__file__), "..", "tests", "golden")
STEPS, BATCH, TOKENS, WIDTH, HEADS = 20, 16, 5, 4, 2


class Head(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.pos_embedding = nn.Parameter(0.5 * torch.randn(1, TOKENS + 1, WIDTH))
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.second = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.head = nn.Linear(WIDTH * (TOKENS + 1), 10)
        self.mask = torch.triu(torch.ones(TOKENS + 1, TOKENS + 1, dtype=torch.bool), 1) if causal else None

    def forward(self, x):
        x = x.reshape(-1, TOKENS, WIDTH)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embedding
        for layer in (self.attention, self.second):
            x = layer(x, x, x, need_weights=False, attn_mask=self.mask)[0]
        return self.head(x.flatten(1))


NAMES = {"class_token": "layers.1.class_token", "pos_embedding": "layers.2.pos_embedding", "attention": "layers.3",
         "second": "layers.4", "head": "layers.6"}


def renamed(name):
    first, *rest = name.split(".")
    return ".".join([NAMES[first], *rest])


def train(causal, weights, x, y, dtype):
    model = Head(causal)
    model.load_state_dict({name: weights[renamed(name)] for name, _ in model.named_parameters()})
    model, x = model.to(dtype), x.to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    record = {"loss": [], "grad_norm": []}
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        record["grad_norm"].append(nn.utils.get_total_norm([p.grad for p in model.parameters()]).item())
        record["loss"].append(loss.item())
        optimizer.step()
    return record


def main():
    torch.set_num_threads(1)
    torch.manual_seed(20261)
    batches = load_file(os.path.join(HERE, "mlp", "batches.safetensors"))
    weights = {renamed(name): p.detach().clone() for name, p in Head(False).named_parameters()}
    out = os.path.join(HERE, "attention")
    os.makedirs(out, exist_ok=True)
    save_file(weights, os.path.join(out, "weights.safetensors"))
    cases = {}
    for name, causal in (("vit", False), ("causal", True)):
        runs = cases[name] = {key: train(causal, weights, batches["x"], batches["y"], dtype)
                              for key, dtype in (("f32", torch.float32), ("f64", torch.float64))}
        apart = max(abs(a - b) / b for a, b in zip(runs["f32"]["loss"], runs["f64"]["loss"]))
        print(f"{name}: loss {runs['f64']['loss'][0]:.6f} to {runs['f64']['loss'][-1]:.6f}, f32 and f64 at most {apart:.1e} apart")
    with open(os.path.join(out, "losses.json"), "w", encoding="utf-8") as file:
        json.dump({"torch": torch.__version__, "steps": STEPS, "batch": BATCH, "cases": cases}, file, indent=1)
        file.write("\n")


main()
