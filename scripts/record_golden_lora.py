#!/usr/bin/env python3
"""Records trainings of low-rank adapters by peft beside the small models of record_golden_language.py, whose first weights
and batches they use.

    python scripts/record_golden_lora.py        (needs the packages torch, transformers, peft and safetensors)

Writes tests/golden/lora: for each case a folder as peft saves it (adapter_config.json, adapter_model.safetensors) with the
first values of the adapters, and trained.safetensors with those after 20 steps of AdamW with clipping in f64; losses.json
with loss and gradient norm (before clipping) of these steps in f32 and f64, and the versions of the packages.
"""
import json
import os
import shutil

import peft
import record_golden_language as language
import torch
import transformers
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch import nn

ROOT = os.path.join(os.path.dirname(__file__), "..", "tests", "golden")
OUT = os.path.join(ROOT, "lora")
LEARNING_RATE, DECAY, CLIP = 1e-2, 0.1, 0.5
CASES = {
    "gpt2": ("gpt2", dict(r=4, lora_alpha=8, target_modules="all-linear", fan_in_fan_out=True)),
    "llama_rslora": ("llama", dict(r=4, lora_alpha=6, use_rslora=True, target_modules=["q_proj", "v_proj", "mlp.down_proj"])),
    "bert": ("bert", dict(r=3, lora_alpha=12, target_modules=["query", "value"], modules_to_save=["transform"])),
    "gpt2_dora": ("gpt2", dict(r=4, lora_alpha=8, use_dora=True, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True)),
    "llama_dora": ("llama", dict(r=2, lora_alpha=4, use_dora=True, target_modules="all-linear")),
}


def adapted(case):
    """The base in f32 with first weights as recorded, and new adapters."""
    name, keys = CASES[case]
    module = language.models()[name]
    start = load_file(os.path.join(ROOT, "language", f"{name}.safetensors"))
    with torch.no_grad():
        for key, p in language.parameters(name, module).items():
            p.copy_(start[key])
    return name, get_peft_model(module, LoraConfig(**keys))


def train(case, first, batches, dtype):
    name, model = adapted(case)
    peft.set_peft_model_state_dict(model, first)
    model = model.to(dtype).eval()
    if CASES[case][1].get("use_dora"):
        model.train()  # peft keeps the norms of the first step otherwise; the models have no dropout
    targets = batches["masked_target" if name in language.MASKED else "target"].long()
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=LEARNING_RATE, weight_decay=DECAY)
    record = {"loss": [], "grad_norm": []}
    for step in range(language.STEPS):
        rows = slice(step * language.BATCH, (step + 1) * language.BATCH)
        loss = nn.functional.cross_entropy(language.logits(name, model, batches, rows).flatten(0, 1), targets[rows].flatten())
        optimizer.zero_grad()
        loss.backward()
        record["grad_norm"].append(nn.utils.clip_grad_norm_(learning, CLIP).item())
        record["loss"].append(loss.item())
        optimizer.step()
    return record, {key: value.detach().float().contiguous() for key, value in get_peft_model_state_dict(model).items()}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(20264)
    batches = load_file(os.path.join(ROOT, "language", "batches.safetensors"))
    cases = {}
    for case in CASES:
        folder = os.path.join(OUT, case)
        shutil.rmtree(folder, ignore_errors=True)
        _, model = adapted(case)
        model.peft_config["default"].base_model_name_or_path = None
        model.save_pretrained(folder)
        os.chmod(os.path.join(folder, "adapter_model.safetensors"), 0o644)
        readme = os.path.join(folder, "README.md")
        if os.path.exists(readme):
            os.remove(readme)
        first = load_file(os.path.join(folder, "adapter_model.safetensors"))
        runs = {}
        for key, dtype in (("f32", torch.float32), ("f64", torch.float64)):
            runs[key], trained = train(case, first, batches, dtype)
        save_file(trained, os.path.join(folder, "trained.safetensors"))
        apart = max(abs(a - b) / b for s in ("loss", "grad_norm") for a, b in zip(runs["f32"][s], runs["f64"][s]))
        print(f"{case}: loss {runs['f64']['loss'][0]:.6f} to {runs['f64']['loss'][-1]:.6f}, f32 and f64 at most {apart:.1e} apart")
        cases[case] = {"model": CASES[case][0], **runs}
    with open(os.path.join(OUT, "losses.json"), "w", encoding="utf-8") as file:
        json.dump({"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__,
                   "steps": language.STEPS, "learning_rate": LEARNING_RATE, "weight_decay": DECAY, "clip": CLIP, "cases": cases},
                  file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
