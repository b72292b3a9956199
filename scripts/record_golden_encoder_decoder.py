#!/usr/bin/env python3
"""Records small encoder-decoder models of Hugging Face on padded pairs: Pegasus (norms before each part) and Marian
(norms behind each part, as in "Attention is all you need").

    python scripts/record_golden_encoder_decoder.py        (needs the packages torch, transformers and safetensors)

Writes tests/golden/encoder_decoder: batches.safetensors; for each model <model>.safetensors with its first weights;
names.txt with names and shapes of the tensors; losses.json with loss and gradient norm (before clipping) of 20 steps of
AdamW with clipping in f32 and f64. The fixed positions of both are set to the sines and cosines in turn of the paper,
where Hugging Face puts all sines first.
"""
import json
import os

import torch
import transformers
from safetensors.torch import save_file
from torch import nn
from transformers import MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

OUT = os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "encoder_decoder")
STEPS, BATCH, SOURCE, TARGET, VOCAB = 20, 4, 14, 10, 37
LEARNING_RATE, DECAY, CLIP = 2e-3, 0.1, 0.5
SMALL = dict(vocab_size=VOCAB, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
             encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=32, activation_function="gelu", dropout=0.0,
             scale_embedding=True, init_std=0.1, pad_token_id=0, eos_token_id=1, decoder_start_token_id=2, bos_token_id=2,
             forced_eos_token_id=None, attn_implementation="eager")


def models():
    return {"pre": PegasusForConditionalGeneration(PegasusConfig(**SMALL)),
            "post": MarianMTModel(MarianConfig(decoder_vocab_size=VOCAB, share_encoder_decoder_embeddings=True, **SMALL))}


def set_positions(module):
    for side in (module.model.encoder, module.model.decoder):
        table = side.embed_positions.weight
        places, width = table.shape
        angles = torch.arange(places, dtype=torch.float64)[:, None] / 10000 ** (torch.arange(0, width, 2).double() / width)
        with torch.no_grad():
            table.copy_(torch.stack([angles.sin(), angles.cos()], dim=2).reshape(places, width))


def parameters(module):
    """Trained ones, once each."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def make_batches():
    count = STEPS * BATCH
    source = torch.randint(3, VOCAB, (count, SOURCE), dtype=torch.int32)
    lengths = torch.randint(SOURCE // 3, SOURCE + 1, (count,), dtype=torch.int32)
    target = torch.randint(3, VOCAB, (count, TARGET), dtype=torch.int32)
    ends = torch.randint(TARGET // 3, TARGET + 1, (count,))
    decoder_input = torch.cat([torch.full((count, 1), 2, dtype=torch.int32), target[:, :-1]], dim=1)
    return {"source": torch.where(torch.arange(SOURCE)[None] < lengths[:, None], source, 0).int(), "source_lengths": lengths,
            "decoder_input": decoder_input, "target": torch.where(torch.arange(TARGET)[None] < ends[:, None], target, -100).int()}


def train(module, start, batches, dtype):
    module = module.to(dtype).eval()
    set_positions(module)
    with torch.no_grad():
        for key, p in parameters(module).items():
            p.copy_(start[key])
    optimizer = torch.optim.AdamW(parameters(module).values(), lr=LEARNING_RATE, weight_decay=DECAY)
    record = {"loss": [], "grad_norm": []}
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        there = (torch.arange(SOURCE)[None] < batches["source_lengths"][rows, None]).long()
        logits = module(input_ids=batches["source"][rows].long(), attention_mask=there,
                        decoder_input_ids=batches["decoder_input"][rows].long()).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batches["target"][rows].long().flatten())
        optimizer.zero_grad()
        loss.backward()
        record["grad_norm"].append(nn.utils.clip_grad_norm_(parameters(module).values(), CLIP).item())
        record["loss"].append(loss.item())
        optimizer.step()
    return record


def main():
    torch.set_num_threads(1)
    torch.manual_seed(20264)
    os.makedirs(OUT, exist_ok=True)
    batches = make_batches()
    save_file(batches, os.path.join(OUT, "batches.safetensors"))
    cases = {}
    with open(os.path.join(OUT, "names.txt"), "w", encoding="utf-8") as names:
        for name, module in models().items():
            start = {}
            for key, p in parameters(module).items():
                # Scales and biases away from their usual 1 and 0, so that each of them is seen to be read.
                start[key] = p.detach() + (0.1 * torch.randn_like(p) if p.dim() == 1 else 0)
            save_file(start, os.path.join(OUT, f"{name}.safetensors"))
            names.write(f"[{name}]\n" + "".join(f"{key} {list(p.shape)}\n" for key, p in start.items()))
            runs = cases[name] = {key: train(module, start, batches, dtype)
                                  for key, dtype in (("f32", torch.float32), ("f64", torch.float64))}
            apart = max(abs(a - b) / b for s in ("loss", "grad_norm") for a, b in zip(runs["f32"][s], runs["f64"][s]))
            print(f"{name}: loss {runs['f64']['loss'][0]:.6f} to {runs['f64']['loss'][-1]:.6f}, f32 and f64 at most {apart:.1e} apart")
    with open(os.path.join(OUT, "losses.json"), "w", encoding="utf-8") as file:
        json.dump({"torch": torch.__version__, "transformers": transformers.__version__, "steps": STEPS, "batch": BATCH,
                   "learning_rate": LEARNING_RATE, "weight_decay": DECAY, "clip": CLIP, "cases": cases}, file, indent=1)
        file.write("\n")


main()
