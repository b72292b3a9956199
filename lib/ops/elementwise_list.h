// The element-wise ops, one line each. The table of ops (ops/elementwise.cpp), the enumeration and
// its names (shared/elementwise.h), and a kernel of each engine follow from these lines; the
// arithmetic is in shared/elementwise.h, and vectorised in cpu/simd_math-inl.h.
#pragma once

// X(name, known, trait, doc, doc of the gradient): an activation y = f(x), and the op
// <name>_backward (known, dy), which reads the output y where f' follows from it, else the input x.
// The trait is a function of ops/elementwise.cpp that sets properties of the op.
#define DLTRAIN_ACTIVATIONS(X)                                                             \
  X(relu, output, epilogue, "y = max(x, 0)", "dx = dy where y > 0, else 0")                \
  X(gelu, input, epilogue, "y = x·Φ(x), with erf", "dx = dy·gelu'(x)")                     \
  X(gelu_tanh, input, epilogue, "y = x·Φ(x), tanh approximation", "dx = dy·gelu_tanh'(x)") \
  X(silu, input, epilogue, "y = x·sigmoid(x)", "dx = dy·silu'(x)")                         \
  X(tanh, output, epilogue, "y = tanh(x)", "dx = dy·(1 - y²)")                             \
  X(sigmoid, output, epilogue, "y = 1 / (1 + exp(-x))", "dx = dy·y·(1 - y)")               \
  X(leaky_relu, output, rounded, "y = x where x > 0, else negative_slope·x",               \
    "dx = dy where y > 0, else negative_slope·dy")                                         \
  X(elu, output, rounded, "y = x where x > 0, else alpha·(exp(x) - 1)",                    \
    "dx = dy where y > 0, else dy·(y + alpha)")                                            \
  X(selu, output, rounded, "elu scaled so that layers keep mean and variance",             \
    "dx = dy·selu'(x), from y")                                                            \
  X(softplus, input, rounded, "y = ln(1 + exp(beta·x)) / beta, x beyond the threshold",    \
    "dx = dy·sigmoid(beta·x)")                                                             \
  X(mish, input, rounded, "y = x·tanh(softplus(x))", "dx = dy·mish'(x)")                   \
  X(hardswish, input, rounded, "y = x·clamp(x + 3, 0, 6) / 6", "dx = dy·hardswish'(x)")    \
  X(hardsigmoid, output, rounded, "y = clamp(x + 3, 0, 6) / 6",                            \
    "dx = dy / 6 where 0 < y < 1, else 0")                                                 \
  X(hardtanh, input, rounded, "y = clamp(x, min_value, max_value)",                        \
    "dx = dy where min_value < x < max_value, else 0")                                     \
  X(softsign, input, rounded, "y = x / (1 + |x|)", "dx = dy / (1 + |x|)²")                 \
  X(quick_gelu, input, rounded, "y = x·sigmoid(1.702x)", "dx = dy·quick_gelu'(x)")

// X(name, trait, doc): y = f(x), with a gradient of its own in ops/elementwise.cpp.
#define DLTRAIN_FUNCTIONS(X)                \
  X(exp, exact, "y = exp(x)")               \
  X(log, exact, "y = ln(x)")                \
  X(sqrt, exact, "y = √x")                  \
  X(square, exact, "y = x²")                \
  X(affine, rounded, "y = x·scale + shift") \
  X(identity, copying, "y = x")

// X(name, trait, doc): y = a ∘ b, likewise.
#define DLTRAIN_BINARIES(X)    \
  X(add, rounded, "y = a + b") \
  X(sub, rounded, "y = a - b") \
  X(mul, rounded, "y = a·b")   \
  X(div, exact, "y = a / b")
