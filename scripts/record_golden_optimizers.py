#!/usr/bin/env python3
"""Records what PyTorch's optimizers, and the papers' own formulas, do to a small network over 20 steps.

    python scripts/record_golden_optimizers.py        (needs the packages torch, safetensors, bitsandbytes, galore-torch and transformers)

The network, weights and batches are those of tests/golden/mlp (GELU, scripts/record_golden_mlp.py). Writes
tests/golden/optimizers/losses.json: for each case the keys of dltrain's `optimizer` and `training` sections,
and from a run in f32 and one in f64 the loss and gradient norm of every step and the loss of the first batch
afterwards (on averaged weights where the case averages). Optimizers that PyTorch does not have are written
out below from their papers. The learning rate is constant.

Also writes tests/golden/optimizers/8bit.safetensors: parameters before and after some updates by bitsandbytes'
optimizers with moments in 8 bits, in f32, the gradients, and the final codes and scales.
"""
import json
import math
import os
from importlib.metadata import version

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # plain PyTorch

import bitsandbytes
import galore_torch
import torch
from bitsandbytes.backends.triton import kernels_optim
from galore_torch import galore_projector
from safetensors.torch import load_file, save_file
from torch import nn

HERE = os.path.join(os.path.dirname(__file__), "..", "tests", "golden")
STEPS, BATCH = 20, 16


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2."""

    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                (b1, b2), lr = group["betas"], group["lr"]
                update = torch.sign(b1 * m + (1 - b1) * p.grad)
                p -= lr * (update + group["weight_decay"] * p)
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


class Lars(torch.optim.Optimizer):
    """You, Gitman & Ginsburg 2017, the learning rate outside of the velocity; no trust ratio without decay, unless
    always."""

    def __init__(self, params, lr, momentum, weight_decay, trust, eps, always=False):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust, "eps": eps})
        self.always = always

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                decay, ratio = group["weight_decay"], 1.0
                if self.always or decay != 0:
                    ratio = group["trust"] * p.norm() / (p.grad.norm() + decay * p.norm() + group["eps"])
                m.mul_(group["momentum"]).add_(ratio * (p.grad + decay * p))
                p -= group["lr"] * m


class Lamb(torch.optim.Optimizer):
    """You et al. 2020, algorithm 2, with bias correction; no trust ratio without decay, unless always."""

    def __init__(self, params, lr, betas, eps, weight_decay, always=False):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.always = always

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                m, v = state.setdefault("m", torch.zeros_like(p)), state.setdefault("v", torch.zeros_like(p))
                t = state["t"] = state.get("t", 0) + 1
                (b1, b2), decay = group["betas"], group["weight_decay"]
                m.mul_(b1).add_(p.grad, alpha=1 - b1)
                v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                update = m / (1 - b1 ** t) / ((v / (1 - b2 ** t)).sqrt() + group["eps"]) + decay * p
                ratio = p.norm() / update.norm() if self.always or decay != 0 else 1.0
                p -= group["lr"] * ratio * update


class Blockwise(torch.optim.Optimizer):
    """Moments in 8 bits: Dettmers et al. 2022, with the tables of bitsandbytes and its blocks of 256. The formula is
    that of AdamW, Lion or SGD with momentum; parameters of fewer than 256 elements have plain moments."""

    def __init__(self, params, kind, lr, decay, betas=(0.9, 0.999)):
        super().__init__(params, {"lr": lr})
        self.kind, self.decay, self.betas = kind, decay, betas
        self.tables = [bitsandbytes.functional.create_dynamic_map(signed).double() for signed in (True, False)]

    def narrow(self, x, table):
        blocks = torch.nn.functional.pad(x.flatten(), (0, -x.numel() % 256)).view(-1, 256)
        scale = blocks.abs().amax(1, keepdim=True)
        share = (blocks / scale.clamp(min=1e-300 if x.dtype == torch.float64 else 1e-38)).double()
        codes = (share.unsqueeze(-1) - table).abs().argmin(-1)
        if table[0] == 0:  # without a sign the code of 0 is that of 0 alone, unlike in bitsandbytes
            codes = torch.where((share > 0) & (codes == 0), 1, codes)
        return (table[codes] * scale).flatten()[:x.numel()].view_as(x).to(x.dtype)

    @torch.no_grad()
    def step(self):
        (b1, b2), lr = self.betas, self.param_groups[0]["lr"]
        for p in self.param_groups[0]["params"]:
            state, g = self.state[p], p.grad
            m, v = state.setdefault("m", torch.zeros_like(p)), state.setdefault("v", torch.zeros_like(p))
            t = state["t"] = state.get("t", 0) + 1
            if self.kind == "adamw":
                m.mul_(b1).add_(g, alpha=1 - b1)
                v.mul_(b2).addcmul_(g, g, value=1 - b2)
                p.mul_(1 - lr * self.decay).sub_(lr / (1 - b1 ** t) * m / ((v / (1 - b2 ** t)).sqrt() + 1e-8))
            elif self.kind == "lion":
                p.mul_(1 - lr * self.decay).sub_(lr * torch.sign(b1 * m + (1 - b1) * g))
                m.mul_(b2).add_(g, alpha=1 - b2)
            else:
                m.mul_(b1).add_(g)
                p.sub_(lr * m)
            if p.numel() >= 256:
                m.copy_(self.narrow(m, self.tables[0]))
                v.copy_(self.narrow(v, self.tables[1]))


def leading_vectors(self, weights, rank, type):
    """GaLoreProjector.get_orthogonal_matrix in the dtype of the gradient (it takes f32), with fixed signs."""
    u, _, vh = torch.linalg.svd(weights.data, full_matrices=False)
    rows = (vh if type == "right" else u.T)[:rank]
    rows = rows * torch.sign(rows.gather(1, rows.abs().argmax(1, keepdim=True)))
    return rows if type == "right" else rows.T


galore_projector.GaLoreProjector.get_orthogonal_matrix = leading_vectors


def galore(make, rank, gap, scale, **settings):
    """galore-torch's optimizer with the matrices projected. Its ε is added to the root of a moment without bias
    correction, so it is tiny."""
    def of(model):
        matrices = [p for p in model.parameters() if p.dim() == 2]
        groups = [{"params": [p for p in model.parameters() if p.dim() != 2]},
                  {"params": matrices, "rank": rank, "update_proj_gap": gap, "scale": scale, "proj_type": "std"}]
        return make(groups, eps=1e-30, no_deprecation_warning=True, **settings)
    return of


def record_8bit(path):
    """What bitsandbytes' PyTorch code makes of given gradients of very different sizes, and of a block of zeros. (That
    for CPUs does not take the nearest codes.) No second moment is so small that it would get the code of 0 there."""
    tensors, seeded = {}, torch.Generator().manual_seed(1)
    tables = [bitsandbytes.functional.create_dynamic_map(signed) for signed in (True, False)]
    cases = {"adamw": ("adam", 0.9, 0.999, 0.1), "lion": ("lion", 0.9, 0.99, 0.1), "sgd": ("momentum", 0.9, 0, 0.0)}
    for name, (kind, beta1, beta2, decay) in cases.items():
        p = torch.randn(1000, generator=seeded)
        gradients = torch.randn(6, 1000, generator=seeded)
        gradients += 0.1 * torch.sign(gradients)
        decades = 1 if name == "adamw" else 4
        gradients *= 10 ** (decades * torch.rand(1000, generator=seeded) - decades)
        gradients[:, 512:768] = 0
        codes = [torch.zeros(1000, dtype=torch.uint8) for _ in tables[:2 if name == "adamw" else 1]]
        scales = [torch.zeros(4) for _ in codes]
        second = (codes[1], scales[1], tables[1]) if name == "adamw" else (None, None, None)
        tensors[f"{name}.before"], tensors[f"{name}.gradients"] = p.clone(), gradients
        for t, gradient in enumerate(gradients):
            kernels_optim.optimizer_update_8bit_blockwise_pytorch(
                p, gradient, codes[0], second[0], beta1, beta2, 0.0, 0.0, 1e-8, t + 1, 0.01, tables[0], second[2], scales[0],
                second[1], decay, 1.0, False, optimizer_name=kind)
        tensors[f"{name}.after"] = p
        for k, (code, scale) in enumerate(zip(codes, scales)):
            tensors[f"{name}.state{k + 1}"], tensors[f"{name}.state{k + 1}.absmax"] = code, scale
    save_file(tensors, path, {"bitsandbytes": bitsandbytes.__version__, "torch": torch.__version__})


def whole(make):
    """One group of all parameters."""
    return lambda model: make(list(model.parameters()))


def grouped(model):
    """No decay on biases, a third of the rate on the first layer, and the second layer frozen."""
    groups = [{"params": [], "lr": lr, "weight_decay": decay} for lr in (0.01, 0.03) for decay in (0.0, 0.1)]
    for name, p in model.named_parameters():
        if name.startswith("2."):
            p.requires_grad_(False)
        else:
            groups[2 * (not name.startswith("0.")) + (not name.endswith("bias"))]["params"].append(p)
    return torch.optim.AdamW(groups)


CASES = {
    "sgd-dampening": {
        "optimizer": "{type: sgd, learning_rate: 0.1, momentum: 0.9, dampening: 0.3, weight_decay: 0.01}",
        "make": whole(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.01))},
    "sgd-nesterov": {
        "optimizer": "{type: sgd, learning_rate: 0.05, momentum: 0.9, nesterov: true, weight_decay: 0.01}",
        "make": whole(lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01))},
    "adam": {
        "optimizer": "{type: adam, learning_rate: 0.01, betas: [0.8, 0.99], weight_decay: 0.1}",
        "make": whole(lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.99), weight_decay=0.1))},
    "adagrad": {
        "optimizer": "{type: adagrad, learning_rate: 0.1, lr_decay: 0.05, initial_accumulator_value: 0.1, weight_decay: 0.01}",
        "make": whole(lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.05, initial_accumulator_value=0.1, weight_decay=0.01))},
    "rmsprop": {
        "optimizer": "{type: rmsprop, learning_rate: 0.005, alpha: 0.9, epsilon: 0.01, weight_decay: 0.01}",
        "make": whole(lambda p: torch.optim.RMSprop(p, lr=0.005, alpha=0.9, eps=0.01, weight_decay=0.01))},
    "rmsprop-centered": {
        "optimizer": "{type: rmsprop, learning_rate: 0.002, alpha: 0.9, epsilon: 0.01, momentum: 0.5, centered: true}",
        "make": whole(lambda p: torch.optim.RMSprop(p, lr=0.002, alpha=0.9, eps=0.01, momentum=0.5, centered=True))},
    "lion": {
        "optimizer": "{type: lion, learning_rate: 0.001, betas: [0.9, 0.95], weight_decay: 0.1}",
        "make": whole(lambda p: Lion(p, 0.001, (0.9, 0.95), 0.1))},
    "lars": {
        "optimizer": "{type: lars, learning_rate: 1, trust_coefficient: 0.02, weight_decay: 0.01, weight_decay_on: matrices}",
        "make": lambda model: Lars([{"params": [p for p in model.parameters() if p.dim() > 1]},
                                    {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}],
                                   1.0, 0.9, 0.01, 0.02, 1e-8)},
    "lamb": {
        "optimizer": "{type: lamb, learning_rate: 0.02, weight_decay: 0.01}",
        "make": whole(lambda p: Lamb(p, 0.02, (0.9, 0.999), 1e-6, 0.01))},
    "lars-always": {
        "optimizer": "{type: lars, learning_rate: 1, trust_coefficient: 0.02, always_adapt: true}",
        "make": whole(lambda p: Lars(p, 1.0, 0.9, 0.0, 0.02, 1e-8, True))},
    "lamb-always": {
        "optimizer": "{type: lamb, learning_rate: 0.02, weight_decay: 0, always_adapt: true}",
        "make": whole(lambda p: Lamb(p, 0.02, (0.9, 0.999), 1e-6, 0.0, True))},
    "adafactor": {
        "optimizer": "{type: adafactor, learning_rate: 0.05, weight_decay: 0.01}",
        "make": whole(lambda p: torch.optim.Adafactor(p, lr=0.05, weight_decay=0.01, eps=(2.0 ** -23, 1e-3)))},
    "adamw-8bit": {
        "optimizer": "{type: adamw, learning_rate: 0.01, weight_decay: 0.1, moments: 8bit, min_8bit_size: 256}",
        "make": whole(lambda p: Blockwise(p, "adamw", 0.01, 0.1))},
    "lion-8bit": {
        "optimizer": "{type: lion, learning_rate: 0.001, weight_decay: 0.1, moments: 8bit, min_8bit_size: 256}",
        "make": whole(lambda p: Blockwise(p, "lion", 0.001, 0.1, (0.9, 0.99)))},
    "sgd-8bit": {
        "optimizer": "{type: sgd, learning_rate: 0.1, momentum: 0.9, moments: 8bit, min_8bit_size: 256}",
        "make": whole(lambda p: Blockwise(p, "sgd", 0.1, 0))},
    "groups": {
        "optimizer": "{type: adamw, learning_rate: 0.03, weight_decay: 0.1, weight_decay_on: matrices, "
                     "groups: [{match: layers.0.*, learning_rate: 0.01}]}",
        "training": "freeze: layers.2.*",
        "make": grouped},
    "clip-value": {
        "optimizer": "{type: sgd, learning_rate: 0.1, momentum: 0.9}",
        "training": "max_grad_value: 0.01",
        "clip": lambda parameters, norms: nn.utils.clip_grad_value_(parameters, 0.01),
        "make": whole(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))},
    "clip-percentile": {
        "optimizer": "{type: sgd, learning_rate: 0.1, momentum: 0.9}",
        "training": "clip_percentile: {percentile: 30, window: 6, min_history: 3, factor: 0.9}",
        "clip": lambda parameters, norms: len(norms) >= 3 and nn.utils.clip_grad_norm_(
            parameters, 0.9 * sorted(norms[-6:])[math.ceil(0.3 * len(norms[-6:])) - 1]),
        "make": whole(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))},
    "galore": {
        "optimizer": "{type: adamw, learning_rate: 0.02, betas: [0.9, 0.99], epsilon: 1e-30, weight_decay: 0, "
                     "galore: {rank: 4, update_gap: 6, scale: 0.5}}",
        "make": galore(galore_torch.GaLoreAdamW, 4, 6, 0.5, lr=0.02, betas=(0.9, 0.99), weight_decay=0.0)},
    "ema": {
        "optimizer": "{type: adamw, learning_rate: 0.01}",
        "training": "ema: {decay: 0.9, start_step: 3}",
        "average": (0.9, 3),
        "make": whole(lambda p: torch.optim.AdamW(p, lr=0.01))},
}


def train(case, weights, x, y, dtype):
    model = nn.Sequential(nn.Linear(20, 32), nn.GELU(approximate="tanh"), nn.Linear(32, 32),
                          nn.GELU(approximate="tanh"), nn.Linear(32, 10))
    model.load_state_dict({name.removeprefix("layers."): value for name, value in weights.items()})
    model, x = model.to(dtype), x.to(dtype)
    optimizer = case["make"](model)
    parameters = [p for p in model.parameters() if p.requires_grad]
    averaged = None
    record, norms = {"loss": [], "grad_norm": []}, []
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.get_total_norm([p.grad for p in parameters]).item()
        if "clip" in case:
            case["clip"](parameters, norms)
        norms.append(norm)
        optimizer.step()
        if "average" in case:
            decay, start = case["average"]
            if step <= start:
                averaged = torch.optim.swa_utils.AveragedModel(
                    model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(decay))
            averaged.update_parameters(model)
        record["loss"].append(loss.item())
        record["grad_norm"].append(norm)
    with torch.no_grad():
        record["eval_loss"] = nn.functional.cross_entropy((averaged or model)(x[:BATCH]), y[:BATCH]).item()
    return record


def main():
    torch.set_num_threads(1)
    weights = load_file(os.path.join(HERE, "mlp", "weights.safetensors"))
    batches = load_file(os.path.join(HERE, "mlp", "batches.safetensors"))
    cases = {}
    for name, case in CASES.items():
        runs = {key: train(case, weights, batches["x"], batches["y"], dtype)
                for key, dtype in (("f32", torch.float32), ("f64", torch.float64))}
        apart = max(abs(a - b) / b for a, b in zip(runs["f32"]["loss"], runs["f64"]["loss"]))
        print(f"{name}: loss {runs['f64']['loss'][0]:.6f} to {runs['f64']['loss'][-1]:.6f}, gradient norm "
              f"{min(runs['f64']['grad_norm']):.3f} to {max(runs['f64']['grad_norm']):.3f}, eval {runs['f64']['eval_loss']:.6f}, "
              f"f32 and f64 at most {apart:.1e} apart")
        cases[name] = {"optimizer": case["optimizer"], "training": case.get("training", ""), **runs}
    os.makedirs(os.path.join(HERE, "optimizers"), exist_ok=True)
    record_8bit(os.path.join(HERE, "optimizers", "8bit.safetensors"))
    with open(os.path.join(HERE, "optimizers", "losses.json"), "w", encoding="utf-8") as file:
        json.dump({"torch": torch.__version__, "bitsandbytes": bitsandbytes.__version__, "galore_torch": version("galore-torch"), "steps": STEPS, "batch": BATCH, "cases": cases}, file, indent=1)
        file.write("\n")


main()
