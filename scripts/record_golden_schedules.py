#!/usr/bin/env python3
"""Records the learning rates of PyTorch's schedulers, and of Hugging Face's formulas, for dltrain's schedules.

    python scripts/record_golden_schedules.py        (needs the package torch)

Writes tests/golden/schedules.json: for each configuration of `lr_scheduler` the factor of the peak in every
step. PyTorch's schedulers begin the warm-up and the decay one step later than dltrain does (their first step
has the factor 0 or the whole peak, their last one does not reach the end), except those whose definition
counts from the first step: StepLR, MultiStepLR, ExponentialLR without a warm-up, OneCycleLR. For the others
factor(step) here is theirs at step + 1.
"""
import json
import math
import os
import warnings

import torch
from torch.optim import lr_scheduler as lrs

warnings.simplefilter("ignore")


def torch_factors(make, steps, offset):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scheduler = make(optimizer)
    factors = []
    for _ in range(steps + offset):
        factors.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        try:
            scheduler.step()
        except ValueError:  # OneCycleLR counts its steps
            pass
    return factors[offset:]


def with_lambda(formula):
    """Hugging Face's schedules are LambdaLR of a formula of the step (transformers/optimization.py)."""
    return lambda optimizer: lrs.LambdaLR(optimizer, formula)


def warmed(warmup, steps, after):
    return with_lambda(lambda s: s / warmup if s < warmup else after(s, (s - warmup) / (steps - warmup)))


CASES = {}


def case(configuration, steps, make, offset):
    CASES["{" + configuration + "}"] = {"steps": steps, "factors": torch_factors(make, steps, offset)}


# PyTorch's own classes.
case("type: step, step_size: 7, gamma: 0.5", 30, lambda o: lrs.StepLR(o, 7, 0.5), 0)
case("type: step, milestones: [3, 10, 11], gamma: 0.1", 20, lambda o: lrs.MultiStepLR(o, [3, 10, 11], 0.1), 0)
case("type: exponential, gamma: 0.9", 25, lambda o: lrs.ExponentialLR(o, 0.9), 0)
case("type: cosine, min_ratio: 0.1", 20, lambda o: lrs.CosineAnnealingLR(o, 20, 0.1), 1)
case("type: polynomial, power: 2", 20, lambda o: lrs.PolynomialLR(o, 20, 2.0), 1)
case("type: linear, min_ratio: 0.25", 20, lambda o: lrs.LinearLR(o, 1.0, 0.25, 20), 1)
case("type: one_cycle", 40, lambda o: lrs.OneCycleLR(o, 1.0, total_steps=40, cycle_momentum=False), 0)
case("type: one_cycle, pct_start: 0.45, div_factor: 10, final_div_factor: 100, anneal_strategy: linear", 33,
     lambda o: lrs.OneCycleLR(o, 1.0, total_steps=33, pct_start=0.45, anneal_strategy="linear", div_factor=10,
                              final_div_factor=100, cycle_momentum=False), 0)
# The formulas of transformers/optimization.py.
case("type: linear, warmup_steps: 5", 25, warmed(5, 25, lambda s, p: max(0.0, 1 - p)), 1)
case("type: cosine, warmup_steps: 5", 25, warmed(5, 25, lambda s, p: 0.5 * (1 + math.cos(math.pi * p))), 1)
case("type: cosine, warmup_steps: 5, restarts: 2", 35,
     warmed(5, 35, lambda s, p: 0.0 if p >= 1 else 0.5 * (1 + math.cos(math.pi * ((3 * p) % 1)))), 1)
case("type: polynomial, warmup_steps: 4, power: 3, min_ratio: 0.01", 24,
     warmed(4, 24, lambda s, p: 0.99 * (1 - p) ** 3 + 0.01), 1)
case("type: inverse_sqrt, warmup_steps: 10", 50, warmed(10, 50, lambda s, p: 1 / math.sqrt((s + 0) / 10)), 1)
case("type: inverse_sqrt, timescale: 100", 20, with_lambda(lambda s: 1 / math.sqrt((s + 100) / 100)), 1)


def wsd(warmup, stable, decay, minimum, shape):
    def formula(s):
        if s < warmup:
            return s / warmup
        if s < warmup + stable:
            return 1.0
        if s < warmup + stable + decay:
            return (1 - minimum) * shape((s - warmup - stable) / decay) + minimum
        return minimum
    return with_lambda(formula)


case("type: wsd, warmup_steps: 5, decay_steps: 10, min_ratio: 0.1", 30, wsd(5, 15, 10, 0.1, lambda p: 1 - p), 1)
case("type: wsd, warmup_ratio: 0.1, decay_ratio: 0.25, anneal_strategy: cos", 40,
     wsd(4, 26, 10, 0.0, lambda p: 0.5 * (1 + math.cos(math.pi * p))), 1)
case("type: wsd, decay_ratio: 0.5, anneal_strategy: 1-sqrt", 20, wsd(0, 10, 10, 0.0, lambda p: 1 - math.sqrt(p)), 1)

path = os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "schedules.json")
with open(path, "w", encoding="utf-8") as file:
    lines = [f"{json.dumps(name)}: {json.dumps(record)}" for name, record in CASES.items()]
    file.write("{\n" + ",\n".join(lines) + "\n}\n")
print(f"{len(CASES)} schedules")
