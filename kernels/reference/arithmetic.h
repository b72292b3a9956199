// The element-wise arithmetic of the reference engine, in double, straight from the definitions.
#pragma once

#include <string_view>

namespace dltrain {

using UnaryFunction = double (*)(double);
using BinaryFunction = double (*)(double, double);

// Returns nullptr when there is no such op, or when it has parameters.
UnaryFunction reference_unary(std::string_view op);
// Arithmetic (a, b), and the activation gradients (output or input, dy).
BinaryFunction reference_binary(std::string_view op);
// Ops with parameters p and q (ops/elementwise.h); dy is ignored by all but gradients.
using ParametrisedFunction = double (*)(double x, double dy, double p, double q);
ParametrisedFunction reference_parametrised(std::string_view op);
// Returns the activation fused into matmul and conv2d: "" is the identity. Throws Error(internal)
// for an unknown name.
UnaryFunction reference_activation(std::string_view name);

}  // namespace dltrain
