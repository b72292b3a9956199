#!/usr/bin/env python3
"""Records what PyTorch computes for every loss, for dltrain's tests.

    python scripts/record_golden_losses.py        (needs the packages torch, safetensors and numpy)

tests/golden/losses gets
    weights.safetensors   a linear layer of 6 inputs and 4 outputs: layers.0.weight, layers.0.bias
    batches.safetensors   x [18, 6]; targets of each kind: labels (one is -100), labels7 (7 stands for
                          "ignored"), distributions, numbers, shares (0 to 1)
    losses.json           for each case: the loss section, the tensor of targets, and in f64 the losses of
                          three steps of SGD (learning rate 0.5) on six samples each and the mean loss of
                          the first 16 samples afterwards
The mean is the one that dltrain documents: PyTorch's reduction="mean", batchmean for kl_div unless the case
says otherwise.
"""
import json
import os

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

SAMPLES, MEASURED, FEATURES, OUTPUTS, BATCH, RATE = 18, 16, 6, 4, 6, 0.5
WEIGHTS = [0.5, 1.0, 2.0, 0.25]
POSITIVE = [1.0, 3.0, 0.5, 2.0]


def weight(values):
    return torch.tensor(values, dtype=torch.float64)


def balanced(labels):
    counts = torch.bincount(labels[labels >= 0], minlength=OUTPUTS).double()
    return counts.sum() / ((counts > 0).sum() * counts)


def cases(targets):
    labels, labels7 = targets["labels"], targets["labels7"]
    huber = {"type": "huber", "delta": 0.5}
    return {
        "cross_entropy": ({"type": "cross_entropy"}, "labels", lambda x, t: F.cross_entropy(x, t)),
        "smoothing": ({"type": "cross_entropy", "label_smoothing": 0.1}, "labels",
                      lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1)),
        "weights": ({"type": "cross_entropy", "class_weights": WEIGHTS}, "labels",
                    lambda x, t: F.cross_entropy(x, t, weight=weight(WEIGHTS))),
        "weights-smoothing": ({"type": "cross_entropy", "class_weights": WEIGHTS, "label_smoothing": 0.2}, "labels",
                              lambda x, t: F.cross_entropy(x, t, weight=weight(WEIGHTS), label_smoothing=0.2)),
        "balanced": ({"type": "cross_entropy", "balanced_class_weights": True}, "labels",
                     lambda x, t: F.cross_entropy(x, t, weight=balanced(labels))),
        "ignore": ({"type": "cross_entropy", "ignore_index": 7}, "labels7",
                   lambda x, t: F.cross_entropy(x, t, ignore_index=7)),
        "ignore-balanced": ({"type": "cross_entropy", "ignore_index": 7, "balanced_class_weights": True}, "labels7",
                            lambda x, t: F.cross_entropy(x, t, ignore_index=7, weight=balanced(labels7[labels7 != 7]))),
        "soft": ({"type": "cross_entropy"}, "distributions", lambda x, t: F.cross_entropy(x, t)),
        "soft-weights-smoothing": ({"type": "cross_entropy", "class_weights": WEIGHTS, "label_smoothing": 0.1},
                                   "distributions",
                                   lambda x, t: F.cross_entropy(x, t, weight=weight(WEIGHTS), label_smoothing=0.1)),
        "kl": ({"type": "kl_divergence"}, "distributions",
               lambda x, t: F.kl_div(F.log_softmax(x, -1), t, reduction="batchmean")),
        "kl-mean": ({"type": "kl_divergence", "reduction": "mean"}, "distributions",
                    lambda x, t: F.kl_div(F.log_softmax(x, -1), t, reduction="mean")),
        "kl-temperature": ({"type": "kl_divergence", "temperature": 3}, "distributions",
                           lambda x, t: 9 * F.kl_div(F.log_softmax(x / 3, -1), t, reduction="batchmean")),
        "mse": ({"type": "mse"}, "numbers", lambda x, t: F.mse_loss(x, t)),
        "l1": ({"type": "l1"}, "numbers", lambda x, t: F.l1_loss(x, t)),
        "huber": (huber, "numbers", lambda x, t: F.huber_loss(x, t, delta=0.5)),
        "smooth_l1": ({"type": "smooth_l1", "beta": 0.5}, "numbers", lambda x, t: F.smooth_l1_loss(x, t, beta=0.5)),
        "binary": ({"type": "binary_cross_entropy"}, "shares",
                   lambda x, t: F.binary_cross_entropy_with_logits(x, t)),
        "binary-pos-weight": ({"type": "binary_cross_entropy", "pos_weight": POSITIVE}, "shares",
                              lambda x, t: F.binary_cross_entropy_with_logits(x, t, pos_weight=weight(POSITIVE))),
    }


def run(loss, w, b, x, t):
    w, b = w.double().requires_grad_(), b.double().requires_grad_()
    optimizer = torch.optim.SGD([w, b], lr=RATE)
    losses = []
    for begin in range(0, SAMPLES, BATCH):
        rows = slice(begin, begin + BATCH)
        value = loss(F.linear(x[rows], w, b), t[rows])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    with torch.no_grad():
        return {"losses": losses, "eval_loss": loss(F.linear(x[:MEASURED], w, b), t[:MEASURED]).item()}


def main():
    torch.manual_seed(7)
    x = torch.randn(SAMPLES, FEATURES)
    w, b = torch.randn(OUTPUTS, FEATURES) / FEATURES**0.5, torch.randn(OUTPUTS) / 3
    labels = torch.randint(0, OUTPUTS, (SAMPLES,))
    labels[:OUTPUTS] = torch.arange(OUTPUTS)
    labels7 = labels.clone()
    labels[7], labels7[6], labels7[11] = -100, 7, 7
    distributions = torch.softmax(2 * torch.randn(SAMPLES, OUTPUTS), -1)
    distributions[3] = torch.tensor([0.0, 1.0, 0.0, 0.0])
    targets = {"labels": labels, "labels7": labels7, "distributions": distributions,
               "numbers": torch.randn(SAMPLES, OUTPUTS), "shares": torch.rand(SAMPLES, OUTPUTS).round(decimals=1)}
    out = os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "losses")
    os.makedirs(out, exist_ok=True)
    save_file({"layers.0.weight": w, "layers.0.bias": b}, os.path.join(out, "weights.safetensors"))
    save_file({"x": x, **targets}, os.path.join(out, "batches.safetensors"))
    record = {}
    for name, (section, tensor, loss) in cases(targets).items():
        t = targets[tensor]
        record[name] = {"loss": section, "targets": tensor,
                        **run(loss, w, b, x.double(), t.double() if t.is_floating_point() else t)}
        print(name, record[name]["losses"], record[name]["eval_loss"])
    with open(os.path.join(out, "losses.json"), "w", encoding="utf-8") as file:
        json.dump({"torch": torch.__version__, "batch": BATCH, "measured": MEASURED, "learning_rate": RATE, "cases": record}, file, indent=1)
        file.write("\n")


main()
