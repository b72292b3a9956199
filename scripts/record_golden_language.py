#!/usr/bin/env python3
"""Records small language models of Hugging Face: GPT-2, Llama (grouped heads, rotary positions with Llama 3's scaling,
SwiGLU), Qwen 2 (biases), Qwen 3 (normalised heads), BERT and ALBERT (shared layers) for masked words with padding, Mixtral
with the losses of its routers and Qwen 3 with experts.

    python scripts/record_golden_language.py        (needs the packages torch, transformers and safetensors)

Writes tests/golden/language: batches.safetensors; for each model <model>.safetensors with its first weights, named as
its files are; names.txt with names and shapes of the tensors; losses.json with loss and gradient norm (before clipping)
of 20 steps of AdamW with clipping in f32 and f64. The losses of routers are part of the gradient, not of the loss; the
weights of experts are stacked, as dltrain has them in memory.
"""
import itertools
import json
import os

import torch
import transformers
from safetensors.torch import save_file
from torch import nn
from transformers import (AlbertConfig, AlbertForMaskedLM, BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig,
                          LlamaForCausalLM, MixtralConfig, MixtralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM)

OUT = os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "language")
STEPS, BATCH, TOKENS, VOCAB = 20, 4, 24, 61
LEARNING_RATE, DECAY, CLIP = 2e-3, 0.1, 0.5
MASKED = ("bert", "albert")
EAGER = {"experts_implementation": "eager"}  # the only one that computes in f64
SEED_OF_EXPERTS = 1
ROUTERS = {"mixtral": (0.1, 0.01), "qwen3_moe": (0.0, 0.0)}  # coefficients of the balancing loss and of the z-loss
COMMON = dict(vocab_size=VOCAB, attn_implementation="eager")
SMALL = dict(COMMON, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
             max_position_embeddings=64, initializer_range=0.1)
SCALING = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 16, "rope_theta": 1000.0}


def models():
    return {
        "gpt2": GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=32, initializer_range=0.1, resid_pdrop=0,
                                           embd_pdrop=0, attn_pdrop=0, **COMMON)),
        "llama": LlamaForCausalLM(LlamaConfig(rope_theta=1000.0, rope_parameters=SCALING, rms_norm_eps=1e-5, **SMALL)),
        "qwen2": Qwen2ForCausalLM(Qwen2Config(rms_norm_eps=1e-6, tie_word_embeddings=True, **SMALL)),
        "qwen3": Qwen3ForCausalLM(Qwen3Config(rms_norm_eps=1e-6, head_dim=16, **SMALL)),
        "bert": BertForMaskedLM(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                                           max_position_embeddings=32, initializer_range=0.1, hidden_dropout_prob=0,
                                           attention_probs_dropout_prob=0, **COMMON)),
    }


def later_models():
    """Made after the others are recorded, whose random numbers stay as they were."""
    yield "albert", AlbertForMaskedLM(AlbertConfig(hidden_size=32, embedding_size=16, num_hidden_layers=3, num_attention_heads=4,
                                                   intermediate_size=48, max_position_embeddings=32, initializer_range=0.1,
                                                   hidden_dropout_prob=0, attention_probs_dropout_prob=0, **COMMON))
    torch.manual_seed(SEED_OF_EXPERTS)  # without nearly equal probabilities
    yield "mixtral", routed(MixtralForCausalLM(MixtralConfig(num_local_experts=4, num_experts_per_tok=2, rope_theta=1e4, **EAGER,
                                                             sliding_window=None, **SMALL)))
    yield "qwen3_moe", routed(Qwen3MoeForCausalLM(Qwen3MoeConfig(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, **EAGER,
                                                                 norm_topk_prob=False, head_dim=16, **SMALL)))


def routed(module):
    """Routers that are sure of their choice, so that rounding does not change it."""
    with torch.no_grad():
        for layer in module.model.layers:
            layer.mlp.gate.weight.mul_(4)
    return module


def stored_name(model, name):
    return name.removeprefix("transformer.") if model == "gpt2" else name


def parameters(model, module):
    out = {}
    for name, p in module.named_parameters():
        if name.endswith("experts.gate_up_proj"):
            stem, half = name.removesuffix("gate_up_proj"), p.shape[1] // 2
            out[stem + "gate_proj.weight"], out[stem + "up_proj.weight"] = p[:, :half], p[:, half:]
        elif name.endswith("experts.down_proj"):
            out[name + ".weight"] = p
        else:
            out[stored_name(model, name)] = p
    return out


def router_loss(name, module, inputs):
    """What the routers add to the loss: the losses of Fedus et al. 2022 and Zoph et al. 2022, by their definitions."""
    total, (balance, z) = 0, ROUTERS[name]
    for layer in module.model.layers:
        x = inputs.pop(0)
        gate, k = layer.mlp.gate.weight, module.config.num_experts_per_tok
        logits = nn.functional.linear(x.reshape(-1, x.shape[-1]), gate)
        p = logits.softmax(-1)
        most, chosen = p.sort(-1, descending=True)
        assert (most[:, k - 1] / most[:, k]).min() > 1.0001, f"{name}: nearly equal probabilities of experts"
        share = torch.stack([(chosen[:, :k] == e).sum() for e in range(len(gate))]) / len(p)
        total = total + balance * len(gate) * (share * p.mean(0)).sum() + z * logits.logsumexp(-1).square().mean()
    return total


def make_batches():
    count = STEPS * BATCH
    tokens = torch.randint(1, VOCAB, (count, TOKENS + 1), dtype=torch.int32)
    lengths = torch.randint(TOKENS // 2, TOKENS + 1, (count,))
    there = (torch.arange(TOKENS)[None] < lengths[:, None]).int()
    masked = (torch.rand(count, TOKENS) < 0.2) & there.bool()
    inputs = tokens[:, :-1].clone()
    return {"input": inputs, "target": tokens[:, 1:].clone(), "attention_mask": there,
            "masked_input": torch.where(masked, 0, inputs) * there, "masked_target": torch.where(masked, inputs, -100).int()}


def logits(name, module, batches, rows):
    if name in MASKED:
        return module(input_ids=batches["masked_input"][rows].long(), attention_mask=batches["attention_mask"][rows]).logits
    return module(input_ids=batches["input"][rows].long()).logits


def train(name, module, start, batches, dtype):
    module = module.to(dtype).eval()
    with torch.no_grad():
        for key, p in parameters(name, module).items():
            p.copy_(start[key])
    targets = batches["masked_target" if name in MASKED else "target"].long()
    optimizer = torch.optim.AdamW(module.parameters(), lr=LEARNING_RATE, weight_decay=DECAY)
    record = {"loss": [], "grad_norm": []}
    inputs = []
    if name in ROUTERS:
        for layer in module.model.layers:
            layer.mlp.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        loss = nn.functional.cross_entropy(logits(name, module, batches, rows).flatten(0, 1), targets[rows].flatten())
        optimizer.zero_grad()
        (loss + router_loss(name, module, inputs) if name in ROUTERS else loss).backward()
        record["grad_norm"].append(nn.utils.clip_grad_norm_(module.parameters(), CLIP).item())
        record["loss"].append(loss.item())
        optimizer.step()
    return record


def record(out, seed, make_batches, models, parameters, train):
    """Writes the files of a folder. models(): pairs of name and module; parameters(name, module); train(name, module, start,
    batches, dtype): a run's losses and gradient norms."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    os.makedirs(out, exist_ok=True)
    batches = make_batches()
    save_file(batches, os.path.join(out, "batches.safetensors"))
    cases = {}
    with open(os.path.join(out, "names.txt"), "w", encoding="utf-8") as names:
        for name, module in models():
            start = {}
            for key, p in parameters(name, module).items():
                # Scales and biases away from their usual 1 and 0, so that each of them is seen to be read.
                start[key] = p.detach().clone() + (0.1 * torch.randn_like(p) if p.dim() == 1 else 0)
            save_file(start, os.path.join(out, f"{name}.safetensors"))
            names.write(f"[{name}]\n" + "".join(f"{key} {list(p.shape)}\n" for key, p in start.items()))
            runs = cases[name] = {key: train(name, module, start, batches, dtype)
                                  for key, dtype in (("f32", torch.float32), ("f64", torch.float64))}
            apart = max(abs(a - b) / b for s in ("loss", "grad_norm") for a, b in zip(runs["f32"][s], runs["f64"][s]))
            print(f"{name}: loss {runs['f64']['loss'][0]:.6f} to {runs['f64']['loss'][-1]:.6f}, f32 and f64 at most {apart:.1e} apart")
    with open(os.path.join(out, "losses.json"), "w", encoding="utf-8") as file:
        json.dump({"torch": torch.__version__, "transformers": transformers.__version__, "steps": STEPS, "batch": BATCH,
                   "learning_rate": LEARNING_RATE, "weight_decay": DECAY, "clip": CLIP, "cases": cases}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    record(OUT, 20262, make_batches, lambda: itertools.chain(models().items(), later_models()), parameters, train)
