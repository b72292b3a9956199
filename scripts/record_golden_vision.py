#!/usr/bin/env python3
"""Records what torchvision calls the tensors of its models, and how small versions of them train.

    python scripts/record_golden_vision.py        (needs the packages torch and torchvision)

tests/golden/vision/names.txt   for each architecture a line "[name]", then one line a tensor of its
                                state_dict: name and shape, without num_batches_tracked
tests/golden/vision/losses.json for each case the loss and the gradient norm of every step in f32 and f64, and the
                                loss of the first batch afterwards in evaluation mode
Weights and batches are made by tests/apps/formula.py, on both sides, so none are kept. The networks are
torchvision's, with fewer channels; SiLU takes the place of ReLU where a case says so. SGD with momentum 0.9, weight
decay 5e-4 and a constant learning rate.
"""
import json
import os
import sys

import torch
import torchvision
from torch import nn
from torchvision.models.vgg import VGG, cfgs, make_layers
from torchvision.models.vision_transformer import VisionTransformer

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "apps"))
import formula  # noqa: E402
from torch_resnet import NarrowResNet  # noqa: E402

OUT = os.path.join(ROOT, "tests", "golden", "vision")
WIDTH, CLASSES = 8, 10
NAMES = ["resnet18", "resnet34", "resnet50", "vgg11", "vgg11_bn", "vgg16", "vgg16_bn", "vit_b_16", "resnet101", "resnet152"]
CASES = {
    "resnet18-silu": {"type": "resnet18", "stem": "cifar", "activation": "silu", "image": 16, "batch": 16, "steps": 20, "learning_rate": 0.005},
    "resnet18-relu": {"type": "resnet18", "stem": "cifar", "activation": "relu", "image": 16, "batch": 16, "steps": 20, "learning_rate": 0.005},
    "vgg11_bn-silu": {"type": "vgg11_bn", "hidden": 16, "dropout": 0.0, "activation": "silu", "image": 64, "batch": 8, "steps": 5,
                      "learning_rate": 0.002},
    "vit_b_16-gelu": {"type": "vit_b_16", "patch_size": 8, "hidden_size": 16, "num_layers": 2, "num_heads": 2,
                      "intermediate_size": 32, "image": 32, "batch": 8, "steps": 20, "learning_rate": 0.01},
    "resnet50-silu": {"type": "resnet50", "stem": "imagenet", "activation": "silu", "image": 64, "batch": 16, "steps": 5, "learning_rate": 0.0002},
}


class NarrowVgg(VGG):
    """torchvision's VGG-11 with WIDTH channels in the first convolution, and small hidden layers."""

    def __init__(self, case):
        plan = [extent if extent == "M" else extent * WIDTH // 64 for extent in cfgs["A"]]
        super().__init__(make_layers(plan, batch_norm=True), num_classes=CLASSES, init_weights=False, dropout=case["dropout"])
        self.classifier[0] = nn.Linear(8 * WIDTH * 49, case["hidden"])
        self.classifier[3] = nn.Linear(case["hidden"], case["hidden"])
        self.classifier[6] = nn.Linear(case["hidden"], CLASSES)
        for part in (self.features, self.classifier):
            for i, module in enumerate(part):
                if isinstance(module, nn.ReLU):
                    part[i] = nn.SiLU()


def train(case, dtype):
    if case["type"] == "vit_b_16":
        model = VisionTransformer(case["image"], case["patch_size"], case["num_layers"], case["num_heads"], case["hidden_size"],
                                  case["intermediate_size"], num_classes=CLASSES)
    else:
        model = (NarrowVgg(case) if case["type"].startswith("vgg")
                 else NarrowResNet(case["type"], WIDTH, CLASSES, case["stem"], case["activation"]))
    state = {name: torch.tensor(formula.weight(name, list(value.shape))).reshape(value.shape)
             for name, value in model.state_dict().items() if not name.endswith("num_batches_tracked")}
    model.load_state_dict(state, strict=False)
    model = model.to(dtype)
    size, batch = case["image"], case["batch"]
    pixels, labels = formula.batches(case["steps"] * batch, [size, size, 3], CLASSES)
    x = torch.tensor(pixels).reshape(-1, size, size, 3).permute(0, 3, 1, 2).to(dtype)
    y = torch.tensor(labels)
    optimizer = torch.optim.SGD(model.parameters(), lr=case["learning_rate"], momentum=0.9, weight_decay=5e-4, foreach=False)
    record = {"loss": [], "grad_norm": []}
    for step in range(case["steps"]):
        rows = slice(step * batch, (step + 1) * batch)
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), float("inf"), foreach=False)
        optimizer.step()
        record["loss"].append(loss.item())
        record["grad_norm"].append(norm.item())
    model.eval()
    with torch.no_grad():
        record["eval_loss"] = nn.functional.cross_entropy(model(x[:batch]), y[:batch]).item()
    return record


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, "names.txt"), "w", encoding="utf-8") as file:
        for name in NAMES:
            file.write(f"[{name}]\n")
            with torch.device("meta"):
                state = getattr(torchvision.models, name)().state_dict()
            for tensor, value in state.items():
                if not tensor.endswith("num_batches_tracked"):
                    file.write(f"{tensor} {list(value.shape)}\n")
    cases = {}
    for name, case in CASES.items():
        cases[name] = dict(case, f32=train(case, torch.float32), f64=train(case, torch.float64))
        f32, f64 = cases[name]["f32"], cases[name]["f64"]
        apart = max(abs(a - b) / b for a, b in zip(f32["loss"], f64["loss"]))
        print(f"{name}: loss {f64['loss'][0]:.6f} to {f64['loss'][-1]:.6f}, f32 and f64 at most {apart:.1e} apart")
    with open(os.path.join(OUT, "losses.json"), "w", encoding="utf-8") as file:
        json.dump({"torch": torch.__version__, "torchvision": torchvision.__version__, "width": WIDTH,
                   "classes": CLASSES, "cases": cases}, file, indent=1)
        file.write("\n")


main()
