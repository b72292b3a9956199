#include "reference/arithmetic.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace dltrain {
namespace {

using std::numbers::inv_sqrtpi;
using std::numbers::pi;
using std::numbers::sqrt2;

double identity(double x) {
  return x;
}
double relu(double x) {
  return x > 0 || std::isnan(x) ? x : 0;
}
double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double silu(double x) {
  return x * sigmoid(x);
}
// Φ and φ: distribution and density of the standard normal.
double normal_distribution(double x) {
  return 0.5 * std::erfc(-x / sqrt2);
}
double normal_density(double x) {
  return inv_sqrtpi / sqrt2 * std::exp(-0.5 * x * x);
}
double gelu(double x) {
  return x * normal_distribution(x);
}
double gelu_tanh_inner(double x) {
  return std::sqrt(2 / pi) * (x + 0.044715 * x * x * x);
}
double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(gelu_tanh_inner(x)));
}
double square(double x) {
  return x * x;
}

double relu_backward(double y, double dy) {
  return y > 0 ? dy : 0;
}
double tanh_backward(double y, double dy) {
  return dy * (1 - y * y);
}
double sigmoid_backward(double y, double dy) {
  return dy * y * (1 - y);
}
double gelu_backward(double x, double dy) {
  return dy * (normal_distribution(x) + x * normal_density(x));
}
double gelu_tanh_backward(double x, double dy) {
  const double t = std::tanh(gelu_tanh_inner(x));
  const double inner_slope = std::sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
  return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner_slope);
}
double silu_backward(double x, double dy) {
  const double s = sigmoid(x);
  return dy * (s + x * s * (1 - s));
}

double add(double a, double b) {
  return a + b;
}
double subtract(double a, double b) {
  return a - b;
}
double multiply(double a, double b) {
  return a * b;
}
double divide(double a, double b) {
  return a / b;
}

template <typename Function>
struct Named {
  std::string_view op;
  Function function;
};

constexpr Named<UnaryFunction> kUnary[] = {
    {"relu", relu},       {"gelu", gelu},     {"gelu_tanh", gelu_tanh}, {"silu", silu},
    {"tanh", std::tanh},  {"exp", std::exp},  {"log", std::log},        {"sqrt", std::sqrt},
    {"sigmoid", sigmoid}, {"square", square}, {"identity", identity},
};

constexpr Named<BinaryFunction> kBinary[] = {
    {"add", add},
    {"sub", subtract},
    {"mul", multiply},
    {"div", divide},
    {"relu_backward", relu_backward},
    {"gelu_backward", gelu_backward},
    {"gelu_tanh_backward", gelu_tanh_backward},
    {"silu_backward", silu_backward},
    {"tanh_backward", tanh_backward},
    {"sigmoid_backward", sigmoid_backward},
};

}  // namespace

UnaryFunction reference_unary(std::string_view op) {
  for (const auto& row : kUnary) {
    if (row.op == op) return row.function;
  }
  return nullptr;
}

BinaryFunction reference_binary(std::string_view op) {
  for (const auto& row : kBinary) {
    if (row.op == op) return row.function;
  }
  return nullptr;
}

UnaryFunction reference_activation(std::string_view name) {
  const UnaryFunction f = name.empty() ? identity : reference_unary(name);
  check_internal(f != nullptr, "unknown activation {}", name);
  return f;
}

}  // namespace dltrain
