#!/usr/bin/env python3
"""Records what PyTorch computes in single layers, for dltrain's tests of layers.

    python scripts/record_golden_layers.py        (needs the package torch)

Writes tests/golden/layers/<group>.safetensors. The metadata give for each case the layer as it stands in a
configuration; the tensors of a case are
    <case>.x, <case>.y               input and output; images are [samples, height, width, channels]
    <case>.dy, <case>.dx             gradient of the sum of y * dy (none for integer inputs)
    <case>.value.<name>              parameters, with PyTorch's names and order of axes
    <case>.gradient.<name>           and their gradients
Inputs, dy and parameters are f32; PyTorch computes from them in f64, and so are the results.
"""
import json
import os
import struct

import torch
import torch.nn.functional as F
from torch import nn


def nhwc(t):
    return t.permute(0, 2, 3, 1).contiguous() if t.dim() == 4 else t.contiguous()


def nchw(t):
    return t.permute(0, 3, 1, 2) if t.dim() == 4 else t


class Function(nn.Module):
    """A function as a module; with `plain` it sees tensors as dltrain has them (channels last)."""

    def __init__(self, f, plain=False):
        super().__init__()
        self.f, self.plain = f, plain

    def forward(self, x):
        return self.f(x)


class LastAxis(nn.Module):
    """Applies a module to the last axis of tensors as dltrain has them."""

    plain = True

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


def sequences(kind):
    """A recurrent network that gives its outputs alone, for every token or after the last."""

    class Sequences(kind):
        plain = True

        def __init__(self, *args, whole=True, **keys):
            super().__init__(*args, batch_first=True, **keys)
            self.whole = whole

        def forward(self, x):
            y, state = super().forward(x)
            if self.whole:
                return y
            h = state[0] if isinstance(state, tuple) else state
            directions = 2 if self.bidirectional else 1
            return torch.cat(list(h[-directions:]), -1)

    return Sequences


def plain(f):
    return Function(f, plain=True)


class Experts(nn.Module):
    """A mixture of experts by its definition: every expert gets every token, and the weights of those not chosen are 0."""

    plain = True

    def __init__(self, width, hidden, experts, k, normalize=True, act=F.silu, gated=True, shared=0):
        super().__init__()
        self.k, self.normalize, self.act, self.gated = k, normalize, act, gated
        self.gate = nn.Linear(width, experts, bias=False)
        nn.init.normal_(self.gate.weight)
        self.experts = self.mlps([experts], width, hidden)
        self.shared_experts = self.mlps([], width, shared * hidden) if shared else None

    def mlps(self, first, width, hidden):
        mlp = nn.Module()
        for name, shape in (("gate_proj", [hidden, width]), ("up_proj", [hidden, width]), ("down_proj", [width, hidden])):
            if name == "gate_proj" and not self.gated:
                continue
            part = nn.Module()
            part.weight = nn.Parameter(torch.randn(first + shape) / 3)
            setattr(mlp, name, part)
        return mlp

    def run(self, mlp, x):
        """x [..., width], or [tokens, 1, width] for all experts."""
        product = (lambda a, w: a @ w.mT) if mlp is not self.experts else (lambda a, w: torch.einsum("tei,eoi->teo", a, w))
        up = product(x, mlp.up_proj.weight)
        up = self.act(product(x, mlp.gate_proj.weight)) * up if self.gated else self.act(up)
        return product(up, mlp.down_proj.weight)

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        p = self.gate(tokens).softmax(-1)
        most = p.sort(-1, descending=True).values
        assert (most[:, self.k - 1] / most[:, self.k]).min() > 1.01, "nearly equal probabilities"
        values, chosen = p.topk(self.k, -1)
        weights = torch.zeros_like(p).scatter(-1, chosen, values / values.sum(-1, keepdim=True) if self.normalize else values)
        y = self.run(self.experts, tokens[:, None].expand(-1, p.shape[-1], -1))
        y = (weights[..., None] * y).sum(1).reshape(x.shape)
        return y + self.run(self.shared_experts, x) if self.shared_experts else y


def slope(m):
    """Gives the parameters of a module values that are not all 0 and 1."""
    for p in m.parameters():
        with torch.no_grad():
            p.copy_(torch.randn(p.shape))
    return m


V, I, S = [3, 21], [2, 6, 5, 4], [1, 6, 5, 2]  # vectors, images, small images

ACTIVATIONS = {
    "relu": ("relu", nn.ReLU()),
    "gelu": ("gelu", nn.GELU()),
    "gelu_tanh": ("{type: gelu, approximate: tanh}", nn.GELU(approximate="tanh")),
    "quick_gelu": ("quick_gelu", Function(lambda x: x * torch.sigmoid(1.702 * x))),
    "silu": ("silu", nn.SiLU()),
    "tanh": ("tanh", nn.Tanh()),
    "sigmoid": ("sigmoid", nn.Sigmoid()),
    "leaky_relu": ("leaky_relu", nn.LeakyReLU()),
    "leaky_relu_steep": ("leaky_relu: 0.25", nn.LeakyReLU(0.25)),
    "elu": ("elu", nn.ELU()),
    "elu_alpha": ("elu: 0.5", nn.ELU(0.5)),
    "selu": ("selu", nn.SELU()),
    "softplus": ("softplus", nn.Softplus()),
    "softplus_beta": ("{type: softplus, beta: 2, threshold: 3}", nn.Softplus(2, 3)),
    "mish": ("mish", nn.Mish()),
    "hardswish": ("hardswish", nn.Hardswish()),
    # nn.Hardsigmoid's own backward rounds 1/6 to f32, in f64 too.
    "hardsigmoid": ("hardsigmoid", Function(lambda x: F.relu6(x + 3) / 6)),
    "hardtanh": ("hardtanh", nn.Hardtanh()),
    "hardtanh_bounds": ("{type: hardtanh, min_value: -0.3, max_value: 2}", nn.Hardtanh(-0.3, 2)),
    "relu6": ("relu6", nn.ReLU6()),
    "softsign": ("softsign", nn.Softsign()),
    "softmax": ("softmax", nn.Softmax(-1)),
    "log_softmax": ("log_softmax", nn.LogSoftmax(-1)),
}
# Recorded after those above, whose random numbers stay as they are; new cases go to the end of cases().
LATER_ACTIVATIONS = {
    "prelu": ("prelu", nn.PReLU()),
    "prelu_channels": ("prelu: {per_channel: true, init: 0.1}", nn.PReLU(33, init=0.1)),
    "celu": ("celu", nn.CELU()),
    "celu_alpha": ("celu: 0.5", nn.CELU(0.5)),
    "log_sigmoid": ("log_sigmoid", nn.LogSigmoid()),
    "tanhshrink": ("tanhshrink", nn.Tanhshrink()),
    "softshrink": ("softshrink", nn.Softshrink()),
}


def cases():
    """group, case, layer, module, shape of the input as dltrain has it"""
    for name, (layer, module) in ACTIVATIONS.items():
        yield "activations", name, layer, module, [4, 33]

    yield "norms", "batch_norm", "batch_norm", slope(nn.BatchNorm2d(4)), I
    yield "norms", "batch_norm_vectors", "{type: batch_norm, epsilon: 0.01}", slope(nn.BatchNorm1d(21, eps=0.01)), V
    yield "norms", "layer_norm", "layer_norm", slope(nn.LayerNorm(21)), V
    yield "norms", "layer_norm_plain", "{type: layer_norm, elementwise_affine: false}", nn.LayerNorm(21, elementwise_affine=False), V
    yield "norms", "layer_norm_no_bias", "{type: layer_norm, bias: false, epsilon: 0.1}", slope(nn.LayerNorm(21, eps=0.1, bias=False)), V
    yield "norms", "layer_norm_images", "layer_norm", LastAxis(slope(nn.LayerNorm(4))), I
    yield "norms", "rms_norm", "{type: rms_norm, epsilon: 1e-6}", slope(nn.RMSNorm(21, eps=1e-6)), V
    yield "norms", "rms_norm_f32", "rms_norm", slope(nn.RMSNorm(21, eps=torch.finfo(torch.float32).eps)), V
    yield "norms", "rms_norm_plain", "{type: rms_norm, epsilon: 0.01, elementwise_affine: false}", nn.RMSNorm(21, eps=0.01, elementwise_affine=False), V
    yield "norms", "group_norm", "group_norm: 2", slope(nn.GroupNorm(2, 4)), I
    yield "norms", "group_norm_one", "group_norm: 1", slope(nn.GroupNorm(1, 4)), I
    yield "norms", "group_norm_each", "{type: group_norm, num_groups: 4, epsilon: 0.01}", slope(nn.GroupNorm(4, 4, eps=0.01)), I
    yield "norms", "group_norm_vectors", "group_norm: 7", slope(nn.GroupNorm(7, 21)), V

    yield "pooling", "max", "{type: max_pool2d, kernel_size: 3, stride: 2, padding: 1}", nn.MaxPool2d(3, 2, 1), I
    yield "pooling", "avg", "avg_pool2d: 2", nn.AvgPool2d(2), I
    yield "pooling", "avg_padded", "{type: avg_pool2d, kernel_size: 3, stride: 2, padding: 1}", nn.AvgPool2d(3, 2, 1), I
    yield "pooling", "avg_inside", "{type: avg_pool2d, kernel_size: [3, 2], stride: [1, 2], padding: [1, 1], count_include_pad: false}", nn.AvgPool2d((3, 2), (1, 2), (1, 1), count_include_pad=False), I
    for size in ([1, 1], [4, 3], [6, 5], [7, 2]):
        name = "x".join(map(str, size))
        yield "pooling", "adaptive_avg_" + name, f"adaptive_avg_pool2d: {size}", nn.AdaptiveAvgPool2d(size), I
        yield "pooling", "adaptive_max_" + name, f"adaptive_max_pool2d: {size}", nn.AdaptiveMaxPool2d(size), I
    yield "pooling", "global_avg", "global_avg_pool2d", Function(lambda x: x.mean((2, 3))), I
    yield "pooling", "global_max", "global_max_pool2d", Function(lambda x: x.amax((2, 3))), I

    for size in ([12, 15], [9, 4], [1, 1]):
        name = "x".join(map(str, size))
        for mode, corners in (("nearest", None), ("bilinear", False), ("bilinear", True)):
            layer = f"{{type: upsample2d, output_size: {size}, mode: {mode}" + (", align_corners: true}" if corners else "}")
            yield ("upsampling", f"{mode}{'_corners' if corners else ''}_{name}", layer,
                   Function(lambda x, s=size, m=mode, c=corners: F.interpolate(x, size=s, mode=m, align_corners=c)), S)
    yield "upsampling", "factor", "upsample2d: 3", nn.Upsample(scale_factor=3), S
    yield "upsampling", "factor_bilinear", "{type: upsample2d, scale_factor: [2, 3], mode: bilinear}", nn.Upsample(scale_factor=(2, 3), mode="bilinear"), S

    yield "convolution", "linear", "linear: 7", nn.Linear(21, 7), V
    yield "convolution", "linear_no_bias", "{type: linear, out_features: 7, bias: false}", nn.Linear(21, 7, bias=False), V
    yield "convolution", "conv2d", "{type: conv2d, out_channels: 6, kernel_size: 3, padding: 1}", nn.Conv2d(4, 6, 3, padding=1), I
    yield "convolution", "conv2d_all", "{type: conv2d, out_channels: 6, kernel_size: [3, 2], stride: [2, 1], padding: [2, 1], dilation: [2, 1], groups: 2, bias: false}", nn.Conv2d(4, 6, (3, 2), (2, 1), (2, 1), (2, 1), 2, False), I
    yield "convolution", "conv_transpose2d", "{type: conv_transpose2d, out_channels: 6, kernel_size: 3}", nn.ConvTranspose2d(4, 6, 3), I
    yield "convolution", "conv_transpose2d_twice", "{type: conv_transpose2d, out_channels: 6, kernel_size: 3, stride: 2, padding: 1, output_padding: 1}", nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), I
    yield "convolution", "conv_transpose2d_all", "{type: conv_transpose2d, out_channels: 6, kernel_size: [3, 2], stride: [3, 2], padding: [2, 1], output_padding: [2, 0], groups: 2, bias: false, dilation: [2, 3]}", nn.ConvTranspose2d(4, 6, (3, 2), (3, 2), (2, 1), (2, 0), 2, False, (2, 3)), I

    yield "rearranging", "flatten", "flatten", plain(lambda x: x.flatten(1)), I
    yield "rearranging", "reshape", "reshape: [10, -1]", plain(lambda x: x.reshape(2, 10, 12)), I
    yield "rearranging", "transpose", "transpose: [0, 3, 1, 2]", plain(lambda x: x.permute(0, 3, 1, 2)), I
    yield "rearranging", "transpose_back", "transpose: [0, 2, 3, 1]", plain(lambda x: x.permute(0, 2, 3, 1)), I
    yield "rearranging", "slice", "slice: {axis: 2, start: 1, stop: -1}", plain(lambda x: x[:, :, 1:-1]), I
    yield "rearranging", "pad2d", "{type: pad2d, padding: [1, 2, 3, 0], value: 0.5}", nn.ConstantPad2d((1, 2, 3, 0), 0.5), I

    yield "embedding", "embedding", "embedding: {num_embeddings: 11, embedding_dim: 5}", nn.Embedding(11, 5), [3, 7]
    padded = nn.Embedding(11, 5, padding_idx=4)
    yield "embedding", "padding", "embedding: {num_embeddings: 11, embedding_dim: 5, padding_idx: 4}", slope(padded), [3, 7]

    T = [3, 6, 5]  # samples, tokens, width
    for kind, module in (("lstm", nn.LSTM), ("gru", nn.GRU), ("rnn", nn.RNN)):
        yield "recurrent", kind, f"{kind}: 7", sequences(module)(5, 7), T
        yield ("recurrent", f"{kind}_deep", f"{{type: {kind}, hidden_size: 4, num_layers: 2, bidirectional: true}}",
               sequences(module)(5, 4, 2, bidirectional=True), T)
        yield ("recurrent", f"{kind}_last", f"{{type: {kind}, hidden_size: 4, bidirectional: true, bias: false, return_sequences: false}}",
               sequences(module)(5, 4, bidirectional=True, bias=False, whole=False), T)
    yield "recurrent", "rnn_relu", "{type: rnn, hidden_size: 6, nonlinearity: relu}", sequences(nn.RNN)(5, 6, nonlinearity="relu"), T

    for name, (layer, module) in LATER_ACTIVATIONS.items():
        yield "activations", name, layer, module, [4, 33]
    yield "activations", "glu", "glu", nn.GLU(-1), [4, 34]
    yield "activations", "glu_images", "glu", nn.GLU(1), I
    yield "activations", "prelu_images", "prelu: {per_channel: true}", nn.PReLU(4), I
    yield "norms", "batch_norm_plain", "{type: batch_norm, affine: false}", nn.BatchNorm2d(4, affine=False), I
    yield "norms", "group_norm_plain", "{type: group_norm, num_groups: 2, affine: false}", nn.GroupNorm(2, 4, affine=False), I
    yield "norms", "instance_norm", "{type: group_norm, num_groups: 4, affine: false}", nn.InstanceNorm2d(4), I
    yield "pooling", "max_ceil", "{type: max_pool2d, kernel_size: 3, stride: 2, ceil_mode: true}", nn.MaxPool2d(3, 2, ceil_mode=True), I
    yield "pooling", "max_ceil_padded", "{type: max_pool2d, kernel_size: [2, 3], stride: [2, 3], padding: 1, ceil_mode: true}", nn.MaxPool2d((2, 3), (2, 3), 1, ceil_mode=True), I
    yield "pooling", "avg_ceil", "{type: avg_pool2d, kernel_size: 2, ceil_mode: true}", nn.AvgPool2d(2, ceil_mode=True), I
    yield "pooling", "avg_ceil_padded", "{type: avg_pool2d, kernel_size: [3, 2], stride: [2, 3], padding: 1, ceil_mode: true}", nn.AvgPool2d((3, 2), (2, 3), 1, ceil_mode=True), I
    yield "pooling", "avg_ceil_inside", "{type: avg_pool2d, kernel_size: [3, 2], stride: [2, 3], padding: 1, ceil_mode: true, count_include_pad: false}", nn.AvgPool2d((3, 2), (2, 3), 1, ceil_mode=True, count_include_pad=False), I

    keys = "num_experts: 4, experts_per_token: 2, intermediate_size: 7"
    yield "experts", "gated", f"moe: {{{keys}}}", Experts(5, 7, 4, 2), [2, 6, 5]
    yield ("experts", "plain", "moe: {num_experts: 5, experts_per_token: 1, intermediate_size: 7, activation: gelu, gated: false, "
           "normalize_top_k: false}", Experts(5, 7, 5, 1, False, F.gelu, False), [9, 5])
    yield ("experts", "shared", f"moe: {{{keys}, normalize_top_k: false, shared_experts: 2}}",
           Experts(5, 7, 4, 2, False, shared=2), [2, 6, 5])


def record(tensors, name, module, shape):
    is_plain = getattr(module, "plain", False)
    to_torch, to_file = ((lambda t: t), (lambda t: t.contiguous())) if is_plain else (nchw, nhwc)
    integers = isinstance(module, nn.Embedding)
    x = torch.randint(0, 11, shape, dtype=torch.int32) if integers else (2 * torch.randn(shape)).double().requires_grad_()
    module = module.double().train()
    y = to_file(module(to_torch(x)))
    dy = torch.randn(y.shape).double()
    (y * dy).sum().backward()
    tensors.update({f"{name}.x": x if integers else x.float(), f"{name}.y": y, f"{name}.dy": dy.float()})
    if not integers:
        tensors[f"{name}.dx"] = x.grad
    for key, p in module.named_parameters():
        key = key.removeprefix("module.")
        tensors[f"{name}.value.{key}"] = p.float()
        tensors[f"{name}.gradient.{key}"] = p.grad


def write(path, tensors, metadata):
    """A safetensors file whose bytes depend on the content only (the package orders metadata at random)."""
    dtypes = {torch.float32: "F32", torch.float64: "F64", torch.int32: "I32"}
    header, data = {"__metadata__": metadata}, b""
    for name, t in tensors.items():
        begin = len(data)
        data += t.numpy().tobytes()
        header[name] = {"dtype": dtypes[t.dtype], "shape": list(t.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header)
    text += " " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text.encode() + data)


def main():
    folder = os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "layers")
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(4)
    groups = {}
    for group, name, layer, module, shape in cases():
        metadata, tensors = groups.setdefault(group, ({}, {}))
        metadata[name] = layer
        record(tensors, name, module, shape)
    for group, (metadata, tensors) in groups.items():
        tensors = {k: t.detach().clone().contiguous() for k, t in tensors.items()}
        write(os.path.join(folder, f"{group}.safetensors"), tensors, metadata)


if __name__ == "__main__":
    main()
