#!/usr/bin/env python3
"""Times training steps of a character GPT (the case gpt_char of bench/torch_bench.py) in PyTorch over Gloo, where the ranks
share the model: its products (DTensor) or its layers (torch.distributed.pipelining, 1F1B). Its context parallelism has no
attention for CPUs (tried with 2.15). Started by torchrun; rank 0 prints the shortest step as JSON. bench/ranks.py --layout compares.

    torchrun --standalone --nproc-per-node 2 bench/torch_layouts.py tensor|pipeline [--threads 1] [--steps 20] [--micro-batches 8]
"""
import argparse
import json
import os
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("layout", choices=["tensor", "pipeline"])
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--micro-batches", type=int, default=8, help="of a step, with pipeline")
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(options.threads)

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

VOCAB, TOKENS, BATCH, LAYERS, HEADS, WIDTH = 65, 256, 16, 6, 6, 384


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = (nn.LayerNorm(WIDTH, bias=False) for _ in range(2))
        self.q, self.k, self.v, self.proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.fc, self.out = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        n = self.ln1(x)
        q, k, v = (f(n).view(b, t, -1, WIDTH // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, -1))
        return x + self.out(F.gelu(self.fc(self.ln2(x))))


class GPT(nn.Module):
    """The layers [first, last) of the model; with the first the embeddings, with the last the head."""

    def __init__(self, first=0, last=LAYERS):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH) if first == 0 else None
        self.wpe = nn.Embedding(TOKENS, WIDTH) if first == 0 else None
        self.blocks = nn.ModuleList(Block() for _ in range(first, last))
        self.lnf = nn.LayerNorm(WIDTH, bias=False) if last == LAYERS else None
        self.head = nn.Linear(WIDTH, VOCAB, bias=False) if last == LAYERS else None

    def forward(self, x):
        if self.wte is not None:
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(self.lnf(x))


def loss_of(logits, y):
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def shared_products(mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    model = GPT()
    for block in model.blocks:
        plan = {name: ColwiseParallel() for name in ("q", "k", "v", "fc")}
        parallelize_module(block, mesh, plan | {name: RowwiseParallel() for name in ("proj", "out")})
    return model


def main():
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    mesh = init_device_mesh("cpu", (ranks,))
    text = torch.randint(0, VOCAB, (BATCH, TOKENS + 1))
    x, y = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    schedule = None
    if options.layout == "tensor":
        model = shared_products(mesh)
    else:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B
        share = LAYERS // ranks
        model = GPT(rank * share, (rank + 1) * share)
        stage = PipelineStage(model, rank, ranks, torch.device("cpu"))
        schedule = Schedule1F1B(stage, n_microbatches=options.micro_batches, loss_fn=loss_of)
    # DTensors and tensors are neither clipped nor updated in one call.
    kinds = [[p for p in model.parameters() if isinstance(p, DTensor) == kind] for kind in (True, False)]
    kinds = [(some, torch.optim.AdamW(some, lr=1e-4, betas=(0.9, 0.95), foreach=True)) for some in kinds if some]
    times = []
    for _ in range(options.steps + 3):
        dist.barrier()
        start = time.perf_counter()
        if schedule is not None:
            if rank == 0:
                schedule.step(x)
            else:
                schedule.step(target=y, losses=[])
        else:
            loss_of(model(x), y).backward()
        for some, optimizer in kinds:
            torch.nn.utils.clip_grad_norm_(some, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
    if rank == 0:
        print(json.dumps({"ms_min": 1e3 * min(times[3:]), "torch": torch.__version__}), flush=True)
    dist.destroy_process_group()


main()
