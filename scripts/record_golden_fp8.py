#!/usr/bin/env python3
"""Records FP8: the roundings of ml_dtypes, and trainings in f64 whose linear layers round the operands of their three products as
the recipes of precision.fp8 say (lib/passes/fp8.h), of the GPT-2 of record_golden_language.py with its first weights and batches.

    python scripts/record_golden_fp8.py        (needs the packages ml_dtypes, torch, transformers and safetensors)

Writes tests/golden/fp8: values.safetensors with the numbers >= 0 of bf16 up to the largest number of a format, and what they become;
losses.json with loss and gradient norm (before clipping) of 20 steps of AdamW for each recipe, and the same without rounding.
"""
import json
import os

import ml_dtypes
import numpy as np
import record_golden_language as language
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.pytorch_utils import Conv1D

ROOT = os.path.join(os.path.dirname(__file__), "..", "tests", "golden")
OUT = os.path.join(ROOT, "fp8")
HISTORY = 3  # steps, of delayed
# The type, its largest number, the exponent of its smallest normal one and the bits of its fraction.
FORMATS = {"e4m3": (ml_dtypes.float8_e4m3fn, 448.0, -6, 3), "e5m2": (ml_dtypes.float8_e5m2, 57344.0, -14, 2)}


def scale_of(amax, largest):
    """The least power of two with amax <= largest * scale."""
    with np.errstate(divide="ignore"):
        return np.where(amax == 0, 1.0, 2.0 ** np.ceil(np.log2(amax / largest)))


def quantized(x, name, scale):
    """In one rounding: ml_dtypes rounds f64 to f32 first. Ties go to even."""
    _, largest, least, fraction = FORMATS[name]
    x = x / scale
    step = 2.0 ** (np.maximum(np.frexp(x)[1] - 1, least) - fraction)
    return np.clip(np.rint(x / step) * step, -largest, largest) * scale


def by_blocks(x, name, rows, columns):
    out = np.empty_like(x)
    for r in range(0, x.shape[0], rows):
        for c in range(0, x.shape[1], columns):
            part = x[r:r + rows, c:c + columns]
            out[r:r + rows, c:c + columns] = quantized(part, name, scale_of(np.abs(part).max(), FORMATS[name][1]))
    return out


class Recipe:
    """Rounds the operands of the products of a layer."""

    def __init__(self, name):
        self.name = name
        self.seen, self.history = {}, {}

    def operand(self, x, kind, key, along_columns):
        """kind: input, weight or gradient. x: a matrix whose columns, or rows, the product adds up."""
        if self.name == "none":
            return x
        if self.name in ("blockwise", "mxfp8"):
            size = 32 if self.name == "mxfp8" else 128
            square = self.name == "blockwise" and kind == "weight"
            return by_blocks(x, "e4m3", size if square or not along_columns else 1, size if square or along_columns else 1)
        form = "e5m2" if kind == "gradient" else "e4m3"
        needed = float(scale_of(np.abs(x).max(), FORMATS[form][1]))
        if self.name == "delayed":
            self.seen[key, kind] = needed
            needed = max(self.history.get((key, kind), [1.0])[-HISTORY:])
        return quantized(x, form, needed)

    def end_step(self):
        for key, scale in self.seen.items():
            self.history.setdefault(key, []).append(scale)


class Product(torch.autograd.Function):
    """x [tokens, in] times weight [in, out]."""

    @staticmethod
    def forward(ctx, x, weight, recipe, key):
        ctx.save_for_backward(x, weight)
        ctx.recipe, ctx.key = recipe, key
        a, b = x.numpy(), weight.numpy()
        return torch.from_numpy(recipe.operand(a, "input", key, True) @ recipe.operand(b, "weight", key, False))

    @staticmethod
    def backward(ctx, dy):
        x, weight = (t.numpy() for t in ctx.saved_tensors)
        recipe, key, g = ctx.recipe, ctx.key, dy.numpy()
        dx = recipe.operand(g, "gradient", key, True) @ recipe.operand(weight, "weight", key, True).T
        dw = recipe.operand(x, "input", key, False).T @ recipe.operand(g, "gradient", key, False)
        return torch.from_numpy(dx), torch.from_numpy(dw), None, None


def rounded_layer(layer, recipe, key):
    def forward(x):
        flat = x.reshape(-1, x.shape[-1]).contiguous()
        y = Product.apply(flat, layer.weight, recipe, key) + layer.bias
        return y.reshape(*x.shape[:-1], -1)
    layer.forward = forward


def train(name, start, batches):
    model = language.models()["gpt2"].double().eval()
    recipe = Recipe(name)
    with torch.no_grad():
        for key, p in language.parameters("gpt2", model).items():
            p.copy_(start[key])
    for key, layer in model.named_modules():
        if isinstance(layer, Conv1D):
            rounded_layer(layer, recipe, key)
    optimizer = torch.optim.AdamW(model.parameters(), lr=language.LEARNING_RATE, weight_decay=language.DECAY)
    record = {"loss": [], "grad_norm": []}
    for step in range(language.STEPS):
        rows = slice(step * language.BATCH, (step + 1) * language.BATCH)
        logits = language.logits("gpt2", model, batches, rows)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batches["target"][rows].long().flatten())
        optimizer.zero_grad()
        loss.backward()
        record["grad_norm"].append(nn.utils.clip_grad_norm_(model.parameters(), language.CLIP).item())
        record["loss"].append(loss.item())
        optimizer.step()
        recipe.end_step()
    return record


def main():
    torch.set_num_threads(1)
    os.makedirs(OUT, exist_ok=True)
    values = {}
    for name, (dtype, largest, _, _) in FORMATS.items():
        bf16 = torch.arange(0x7F80, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
        bf16 = bf16[(bf16 <= largest) & ((bf16 >= 2.0 ** -20) | (bf16 == 0))]
        values[f"{name}.from"] = bf16.float()
        values[f"{name}.to"] = torch.from_numpy(bf16.float().numpy().astype(dtype).astype(np.float32))
        assert (quantized(bf16.double().numpy(), name, 1.0) == values[f"{name}.to"].numpy()).all()
    save_file(values, os.path.join(OUT, "values.safetensors"))
    start = load_file(os.path.join(ROOT, "language", "gpt2.safetensors"))
    batches = load_file(os.path.join(ROOT, "language", "batches.safetensors"))
    cases = {name: train(name, start, batches) for name in ("none", "current", "delayed", "blockwise", "mxfp8")}
    for name, case in cases.items():
        apart = max(abs(a - b) / b for s in case for a, b in zip(case[s], cases["none"][s]))
        print(f"{name}: loss {case['loss'][0]:.6f} to {case['loss'][-1]:.6f}, {apart:.1e} from the training without rounding")
    with open(os.path.join(OUT, "losses.json"), "w", encoding="utf-8") as file:
        json.dump({"torch": torch.__version__, "ml_dtypes": ml_dtypes.__version__, "history": HISTORY, "cases": cases}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
