#!/usr/bin/env python3
"""Trains configs/recipes/digits-resnet18.yaml with dltrain, and the same network with the same settings with PyTorch,
each with several seeds, and prints the test accuracies side by side.

    scripts/digits_as_cifar.py
    bench/accuracy.py [--seeds 5] [--first-seed 0] [--python PYTHON] [--threads 2]

Both: torchvision's ResNet-18 with CIFAR's stem and 16 channels, Kaiming's initial values, crops of padded images, SGD
with momentum, weight decay, linear warmup and cosine. Random numbers differ, so single runs differ; the means should agree.
--python selects a Python with PyTorch (default: the environment variable TORCH_PYTHON, or python3).
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPS, WARMUP, BATCH, RATE, TEST = 345, 23, 64, 0.1, 360
MEAN, STD = 0.338, 0.322


def torch_accuracy(seed, threads):
    sys.path.insert(0, str(ROOT / "scripts"))
    import torch
    from torch_resnet import NarrowResNet

    def split(names):
        raw = b"".join((ROOT / "data" / "digits-cifar" / name).read_bytes() for name in names)
        records = torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(-1, 3073)
        return (records[:, 1:].reshape(-1, 3, 32, 32).float() / 255 - MEAN) / STD, records[:, 0].long()

    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    x, y = split([f"data_batch_{i}.bin" for i in range(1, 6)])
    test_x, test_y = split(["test_batch.bin"])
    black = (0 - MEAN) / STD  # random_crop pads before normalising
    padded = torch.nn.functional.pad(x, (4, 4, 4, 4), value=black)
    model = NarrowResNet("resnet18", 16, 10, "cifar").initialize()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4)
    order = torch.tensor([], dtype=torch.long)
    for step in range(STEPS):
        share = (step + 1) / WARMUP if step < WARMUP else 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))
        for group in optimizer.param_groups:
            group["lr"] = RATE * share
        while len(order) < BATCH:
            order = torch.cat([order, torch.randperm(len(x))])
        rows, order = order[:BATCH], order[BATCH:]
        places = torch.randint(0, 9, (BATCH, 2)).tolist()
        images = torch.stack([padded[r, :, a:a + 32, b:b + 32] for r, (a, b) in zip(rows.tolist(), places)])
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), y[rows]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return (model(test_x).argmax(1) == test_y).float().mean().item()


def dltrain_accuracy(dltrain, seed, threads):
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        subprocess.run([dltrain, "-q", "--config", "configs/recipes/digits-resnet18.yaml", "--seed", str(seed), "--output-dir",
                        f"{folder}/run", "--result", str(result)], cwd=ROOT, check=True,
                       env=dict(os.environ, OMP_NUM_THREADS=str(threads)))
        return json.loads(result.read_text())["eval_accuracy"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--python", default=os.environ.get("TORCH_PYTHON", "python3"), help="a Python with torch and torchvision")
    parser.add_argument("--dltrain", default=str(ROOT / "build" / "dltrain"))
    parser.add_argument("--torch-seed", type=int, help=argparse.SUPPRESS)  # runs the PyTorch side in this process
    arguments = parser.parse_args()
    if arguments.torch_seed is not None:
        print(torch_accuracy(arguments.torch_seed, arguments.threads))
        return
    found = {"dltrain": [], "PyTorch": []}
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        found["dltrain"].append(dltrain_accuracy(arguments.dltrain, seed, arguments.threads))
        peer = subprocess.run([arguments.python, __file__, "--torch-seed", str(seed), "--threads", str(arguments.threads)],
                              check=True, capture_output=True, text=True)
        found["PyTorch"].append(float(peer.stdout))
        print(f"seed {seed}: dltrain {100 * found['dltrain'][-1]:.2f} %, PyTorch {100 * found['PyTorch'][-1]:.2f} %", flush=True)
    for name, values in found.items():
        mean = sum(values) / len(values)
        deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / max(len(values) - 1, 1))
        print(f"{name}: mean {100 * mean:.2f} %, deviation {100 * deviation:.2f}, {100 * min(values):.2f} to {100 * max(values):.2f}")


main()
