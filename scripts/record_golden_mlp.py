#!/usr/bin/env python3
"""Records what PyTorch computes on two small networks, for dltrain's trajectory tests.

    python scripts/record_golden_mlp.py        (needs the packages torch and safetensors)

For each of tests/golden/mlp and tests/golden/convnet it writes
    weights.safetensors   the initial parameters in f32, named layers.<index>.<name> as torch's
                          Sequential names them (linear [out, in], convolution [out, in, kh, kw])
    batches.safetensors   x and y of all steps in order: step i is rows i*batch to (i+1)*batch;
                          images are [samples, height, width, channels]
    <case>.yaml           the configuration that dltrain runs the same training from
    losses.json           for each case and for f32 and f64: loss, gradient norm before clipping and
                          learning rate of every step, and the loss of the first batch afterwards in
                          evaluation mode (running statistics instead of the batch's)

The f64 run starts from the same f32 weights; the distance between the two runs is the yardstick of the
tolerances. The learning rate of step s (counted from 1) is base * s / warmup up to s = warmup, and then
base * (m + (1 - m) * (1 + cos(pi * (s - warmup) / (steps - warmup))) / 2) with m = min_ratio. Flatten
takes images in the order of the files (height, width, channels), so the weights after it stand in that
order too.
"""
import json
import math
import os

import torch
from safetensors.torch import save_file
from torch import nn

STEPS, WARMUP, MIN_RATIO = 20, 5, 0.1
OPTIMIZERS = {
    "sgd": {"type": "sgd", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 5e-4},
    "adamw": {"type": "adamw", "learning_rate": 0.01, "betas": [0.9, 0.95], "epsilon": 1e-8, "weight_decay": 0.1},
}
CLIP = {"sgd": None, "adamw": 1.0}


class Flatten(nn.Module):
    def forward(self, x):
        return x.permute(0, 2, 3, 1).flatten(1)


LAYER = {"relu": "{type: relu}", "gelu": "{type: gelu, approximate: tanh}"}


def activation(name):
    return nn.ReLU() if name == "relu" else nn.GELU(approximate="tanh")


NETWORKS = {
    "mlp": {
        "input_shape": [20], "batch": 16, "activations": ["gelu", "relu"],
        "build": lambda act: nn.Sequential(nn.Linear(20, 32), activation(act), nn.Linear(32, 32), activation(act),
                                           nn.Linear(32, 10)),
        "layers": ["{type: linear, out_features: 32}", "{type: ACT}", "{type: linear, out_features: 32}",
                   "{type: ACT}", "{type: linear, out_features: 10}"],
    },
    "convnet": {
        "input_shape": [8, 8, 2], "batch": 8, "activations": ["relu"],
        "build": lambda act: nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), activation(act),
                                           nn.MaxPool2d(2), Flatten(), nn.Linear(96, 10)),
        "layers": ["{type: conv2d, out_channels: 6, kernel_size: 3, padding: 1}", "{type: batch_norm}", "{type: ACT}",
                   "{type: max_pool2d, kernel_size: 2}", "{type: flatten}", "{type: linear, out_features: 10}"],
    },
}


def learning_rate_ratio(step):
    if step <= WARMUP:
        return step / WARMUP
    cosine = (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))) / 2
    return MIN_RATIO + (1 - MIN_RATIO) * cosine


def make_optimizer(name, parameters):
    o = OPTIMIZERS[name]
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=o["learning_rate"], momentum=o["momentum"],
                               weight_decay=o["weight_decay"], foreach=False)
    return torch.optim.AdamW(parameters, lr=o["learning_rate"], betas=o["betas"], eps=o["epsilon"],
                             weight_decay=o["weight_decay"], foreach=False)


def train(network, act, optimizer_name, weights, x, y, dtype):
    """One trajectory; returns what losses.json holds of it."""
    model = network["build"](act)
    model.load_state_dict({name.removeprefix("layers."): value for name, value in weights.items()}, strict=False)
    model = model.to(dtype)
    parameters = list(model.parameters())
    optimizer = make_optimizer(optimizer_name, parameters)
    base, batch = OPTIMIZERS[optimizer_name]["learning_rate"], network["batch"]
    x = x.to(dtype)
    x = x.permute(0, 3, 1, 2) if x.dim() == 4 else x
    record = {"loss": [], "grad_norm": [], "learning_rate": []}
    for step in range(1, STEPS + 1):
        rows = slice((step - 1) * batch, step * batch)
        optimizer.param_groups[0]["lr"] = base * learning_rate_ratio(step)
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(parameters, CLIP[optimizer_name] or math.inf, foreach=False)
        optimizer.step()
        record["loss"].append(loss.item())
        record["grad_norm"].append(norm.item())
        record["learning_rate"].append(optimizer.param_groups[0]["lr"])
    model.eval()
    with torch.no_grad():
        record["eval_loss"] = nn.functional.cross_entropy(model(x[:batch]), y[:batch]).item()
    return record


def configuration(folder, network, act, optimizer_name):
    layers = "\n".join("    - " + layer.replace("{type: ACT}", LAYER[act]) for layer in network["layers"])
    optimizer = ", ".join(f"{key}: {value}" for key, value in OPTIMIZERS[optimizer_name].items())
    clip = f", max_grad_norm: {CLIP[optimizer_name]}" if CLIP[optimizer_name] else ""
    return f"""# Written by scripts/record_golden_mlp.py; losses.json beside it holds what PyTorch computes.
name: golden-{folder}-{act}-{optimizer_name}
model:
  init_from: tests/golden/{folder}/weights.safetensors
  layers:
{layers}
loss: {{type: cross_entropy}}
data:
  train: {{type: tensors, path: tests/golden/{folder}/batches.safetensors, inputs: x, targets: y, shuffle: false}}
optimizer: {{{optimizer}}}
lr_scheduler: {{type: cosine, warmup_steps: {WARMUP}, min_ratio: {MIN_RATIO}}}
training: {{global_batch_size: {network["batch"]}, max_steps: {STEPS}{clip}}}
logging: {{logging_steps: 1}}
"""


def record_network(folder, network):
    out = os.path.join(os.path.dirname(__file__), "..", "tests", "golden", folder)
    os.makedirs(out, exist_ok=True)
    torch.manual_seed(20260)
    weights = {"layers." + name: value for name, value in network["build"]("relu").named_parameters()}
    weights = {name: value.detach().clone() for name, value in weights.items()}
    samples = STEPS * network["batch"]
    # Classes that can be learned: a mean for each, and noise.
    y = torch.randint(0, 10, (samples,))
    means = torch.randn(10, *network["input_shape"])
    x = means[y] + torch.randn(samples, *network["input_shape"])
    save_file(weights, os.path.join(out, "weights.safetensors"))
    save_file({"x": x, "y": y}, os.path.join(out, "batches.safetensors"))
    cases = {}
    for act in network["activations"]:
        for name in OPTIMIZERS:
            case = f"{act}-{name}"
            with open(os.path.join(out, case + ".yaml"), "w", encoding="utf-8") as file:
                file.write(configuration(folder, network, act, name))
            cases[case] = {key: train(network, act, name, weights, x, y, dtype)
                           for key, dtype in (("f32", torch.float32), ("f64", torch.float64))}
    with open(os.path.join(out, "losses.json"), "w", encoding="utf-8") as file:
        json.dump({"torch": torch.__version__, "steps": STEPS, "batch": network["batch"], "cases": cases}, file, indent=1)
        file.write("\n")
    for case, runs in cases.items():
        apart = max(abs(a - b) / b for a, b in zip(runs["f32"]["loss"], runs["f64"]["loss"]))
        print(f"{folder} {case}: loss {runs['f64']['loss'][0]:.6f} to {runs['f64']['loss'][-1]:.6f}, "
              f"gradient norm {min(runs['f64']['grad_norm']):.3f} to {max(runs['f64']['grad_norm']):.3f}, "
              f"f32 and f64 at most {apart:.1e} apart")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for folder, network in NETWORKS.items():
        record_network(folder, network)


main()
