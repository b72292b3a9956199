// The element-wise ops, one line each. The table of ops (ops/elementwise.cpp), the enumeration and
// its names (shared/elementwise.h), and a kernel of each engine follow from these lines; the
// arithmetic is in shared/elementwise.h, and vectorised in cpu/simd_math-inl.h.
#pragma once

// X(name, known, doc, doc of the gradient): an activation y = f(x), and the op <name>_backward
// (known, dy), which reads the output y where f' follows from it, else the input x.
#define DLTRAIN_ACTIVATIONS(X)                                                                    \
  X(relu, output, "y = max(x, 0)", "dx = dy where y > 0, else 0")                                 \
  X(gelu, input, "y = x·Φ(x), with erf", "dx = dy·gelu'(x)")                                      \
  X(gelu_tanh, input, "y = x·Φ(x), tanh approximation", "dx = dy·gelu_tanh'(x)")                  \
  X(silu, input, "y = x·sigmoid(x)", "dx = dy·silu'(x)")                                          \
  X(tanh, output, "y = tanh(x)", "dx = dy·(1 - y²)")                                              \
  X(sigmoid, output, "y = 1 / (1 + exp(-x))", "dx = dy·y·(1 - y)")                                \
  X(leaky_relu, output, "y = x where x > 0, else negative_slope·x",                               \
    "dx = dy where y > 0, else negative_slope·dy")                                                \
  X(elu, output, "y = x where x > 0, else alpha·(exp(x) - 1)",                                    \
    "dx = dy where y > 0, else dy·(y + alpha)")                                                   \
  X(selu, output, "elu scaled so that layers keep mean and variance", "dx = dy·selu'(x), from y") \
  X(softplus, input, "y = ln(1 + exp(beta·x)) / beta, x beyond the threshold",                    \
    "dx = dy·sigmoid(beta·x)")                                                                    \
  X(mish, input, "y = x·tanh(softplus(x))", "dx = dy·mish'(x)")                                   \
  X(hardswish, input, "y = x·clamp(x + 3, 0, 6) / 6", "dx = dy·hardswish'(x)")                    \
  X(hardsigmoid, output, "y = clamp(x + 3, 0, 6) / 6", "dx = dy / 6 where 0 < y < 1, else 0")     \
  X(hardtanh, input, "y = clamp(x, min_value, max_value)",                                        \
    "dx = dy where min_value < x < max_value, else 0")                                            \
  X(softsign, input, "y = x / (1 + |x|)", "dx = dy / (1 + |x|)²")                                 \
  X(quick_gelu, input, "y = x·sigmoid(1.702x)", "dx = dy·quick_gelu'(x)")

// X(name, doc): y = f(x), with a gradient of its own in ops/elementwise.cpp.
#define DLTRAIN_FUNCTIONS(X)       \
  X(exp, "y = exp(x)")             \
  X(log, "y = ln(x)")              \
  X(sqrt, "y = √x")                \
  X(square, "y = x²")              \
  X(affine, "y = x·scale + shift") \
  X(identity, "y = x")

// X(name, doc): y = a ∘ b, likewise.
#define DLTRAIN_BINARIES(X) \
  X(add, "y = a + b")       \
  X(sub, "y = a - b")       \
  X(mul, "y = a·b")         \
  X(div, "y = a / b")
