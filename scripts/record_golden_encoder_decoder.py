#!/usr/bin/env python3
"""Records small encoder-decoder models of Hugging Face on padded pairs: Pegasus (norms before each part) and Marian
(norms behind each part, as in "Attention is all you need").

    python scripts/record_golden_encoder_decoder.py        (needs the packages torch, transformers and safetensors)

Writes tests/golden/encoder_decoder: batches.safetensors; for each model <model>.safetensors with its first weights;
names.txt with names and shapes of the tensors; losses.json with loss and gradient norm (before clipping) of 20 steps of
AdamW with clipping in f32 and f64. The fixed positions of both are set to the sines and cosines in turn of the paper,
where Hugging Face puts all sines first.
"""
import os

import torch
from torch import nn
from transformers import MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

from record_golden_language import BATCH, CLIP, DECAY, LEARNING_RATE, STEPS, record

OUT = os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "encoder_decoder")
SOURCE, TARGET, VOCAB = 14, 10, 37
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


def parameters(_, module):
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


def train(name, module, start, batches, dtype):
    module = module.to(dtype).eval()
    set_positions(module)
    with torch.no_grad():
        for key, p in parameters(name, module).items():
            p.copy_(start[key])
    optimizer = torch.optim.AdamW(parameters(name, module).values(), lr=LEARNING_RATE, weight_decay=DECAY)
    record = {"loss": [], "grad_norm": []}
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        there = (torch.arange(SOURCE)[None] < batches["source_lengths"][rows, None]).long()
        logits = module(input_ids=batches["source"][rows].long(), attention_mask=there,
                        decoder_input_ids=batches["decoder_input"][rows].long()).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batches["target"][rows].long().flatten())
        optimizer.zero_grad()
        loss.backward()
        record["grad_norm"].append(nn.utils.clip_grad_norm_(parameters(name, module).values(), CLIP).item())
        record["loss"].append(loss.item())
        optimizer.step()
    return record


if __name__ == "__main__":
    record(OUT, 20264, make_batches, lambda: models().items(), parameters, train)
