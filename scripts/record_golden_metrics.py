#!/usr/bin/env python3
"""Writes tests/golden/metrics.json: outputs, targets, and what scikit-learn measures on them.

    python3 -m venv V && V/bin/pip install scikit-learn && V/bin/python scripts/record_golden_metrics.py

tests/apps/test_metrics.py compares dltrain's evaluation with it. A positive answer is a logit above 0. `accuracy` of several
binary outputs is the share of right elements (1 - hamming_loss); `confusion` of them has a row tn, fp, fn, tp for each.
"""
import json
from pathlib import Path

import numpy as np
from sklearn import metrics as m

random = np.random.default_rng(18)


def table(targets, answers, labels):
    columns = m.precision_recall_fscore_support(targets, answers, labels=labels, average=None, zero_division=0)
    return [{"class": str(label), "precision": p, "recall": r, "f1": f, "support": int(s)}
            for label, p, r, f, s in zip(labels, *columns)]


def class_metrics(targets, answers):
    means = {f"{name}_macro": function(targets, answers, average="macro", zero_division=0)
             for name, function in (("precision", m.precision_score), ("recall", m.recall_score), ("f1", m.f1_score))}
    return {**means, "f1_weighted": m.f1_score(targets, answers, average="weighted", zero_division=0)}


def case(name, loss, asked, outputs, targets, values, **more):
    values = {key: float(value) for key, value in values.items()}
    return {"name": name, "loss": loss, "metrics": asked, "outputs": outputs.tolist(), "targets": targets.tolist(),
            "expected": values, **more}


CLASSES = ["accuracy", "precision", "recall", "f1", "confusion"]


def binary(name, logits, targets):
    answers = (logits > 0).astype(int)
    values = {"accuracy": m.accuracy_score(targets, answers), **class_metrics(targets, answers)}
    return case(name, "binary_cross_entropy", CLASSES, logits[:, None], targets[:, None], values,
                classes=table(targets, answers, [0, 1]), confusion=m.confusion_matrix(targets, answers, labels=[0, 1]).tolist())


def multi_class(name, logits, targets, k):
    answers, labels = logits.argmax(1), list(range(logits.shape[1]))
    values = {"accuracy": m.accuracy_score(targets, answers), **class_metrics(targets, answers),
              f"top_{k}": m.top_k_accuracy_score(targets, logits, k=k, labels=labels)}
    return case(name, "cross_entropy", [*CLASSES, f"top_{k}"], logits, targets, values,
                classes=table(targets, answers, labels), confusion=m.confusion_matrix(targets, answers, labels=labels).tolist())


def multi_label(name, logits, targets):
    answers = (logits > 0).astype(int)
    values = {"accuracy": 1 - m.hamming_loss(targets, answers), **class_metrics(targets, answers)}
    return case(name, "binary_cross_entropy", CLASSES, logits, targets, values,
                classes=table(targets, answers, list(range(targets.shape[1]))),
                confusion=m.multilabel_confusion_matrix(targets, answers).reshape(-1, 4).tolist())


def numbers(name, outputs, targets):
    values = {"mae": m.mean_absolute_error(targets, outputs), "mse": m.mean_squared_error(targets, outputs),
              "rmse": m.root_mean_squared_error(targets, outputs), "r2": m.r2_score(targets, outputs)}
    return case(name, "mse", ["mae", "mse", "rmse", "r2"], outputs, targets, values)


def logits(*shape):
    """Numbers that f32 has exactly, all different in a row."""
    return np.round(random.normal(size=shape) * 64) / 64 + np.arange(shape[-1]) / 1024 + 1 / 4096


def cases():
    few = (random.random(48) < 0.2).astype(int)
    yield binary("binary", logits(48, 1)[:, 0] + few - 0.5, few)
    yield binary("binary without a positive answer", -np.abs(logits(12, 1)[:, 0]) - 1, few[:12])
    # Class 3 occurs neither as target nor as prediction, class 4 only as target.
    targets = random.choice([0, 1, 2, 4], size=40, p=[0.5, 0.3, 0.1, 0.1])
    yield multi_class("several classes", logits(40, 5) + 1.5 * np.eye(5)[targets] - [0, 0, 0, 9, 9], targets, 2)
    # The last output is neither a target nor predicted in any sample.
    several = (random.random((32, 4)) < [0.5, 0.3, 0.1, 0]).astype(int)
    yield multi_label("several labels", logits(32, 4) + several - [0, 0.5, 0.5, 9], several)
    truth = np.round(random.normal(size=(24, 3)) * 64) / 64 * [1, 10, 0] + [0, 100, 0.5]
    yield numbers("several numbers, one of them constant", truth + logits(24, 3), truth)
    yield numbers("one number", truth[:, :1] / 2 + logits(24, 1), truth[:, :1])


def main():
    root = Path(__file__).resolve().parent.parent
    rows = ",\n".join(json.dumps(row) for row in cases())
    (root / "tests" / "golden" / "metrics.json").write_text(f"[\n{rows}\n]\n")


main()
