"""Tasks 6 and 7 of docs/comparison.md: the memory of a step of the GPT, from fake tensors: nothing is allocated."""
# Task 6
import sys

import psutil
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from transformers import GPT2Config, GPT2LMHeadModel


def needs(batch):
    with FakeTensorMode():
        model = GPT2LMHeadModel(GPT2Config(vocab_size=96, n_layer=2, n_embd=64, n_head=4, n_positions=64,
                                           bos_token_id=0, eos_token_id=0))
        optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        x = torch.zeros(batch, 64, dtype=torch.int64)
        with tracker:
            for _ in range(2):  # the first step makes the moments
                model(x, labels=x).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                tracker.reset_mod_stats()
    return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]


if len(sys.argv) == 1:
    print(f"needs {needs(8) / 2**20:.1f} MiB, this machine has {psutil.virtual_memory().available / 2**20:.0f} MiB")
# Task 7
else:
    batch = 1
    while needs(2 * batch) <= float(sys.argv[1]) * 2**20:
        batch *= 2
    print(f"the largest power of two that fits: {batch}")
