#include "reference/arithmetic.h"

#include <algorithm>
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

double selu(double x) {
  const double alpha = 1.6732632423543772848170429916717;
  return 1.0507009873554804934193349852946 * (x > 0 ? x : alpha * std::expm1(x));
}
double mish(double x) {
  return x * std::tanh(std::log1p(std::exp(x)));
}
double hardsigmoid(double x) {
  return std::isnan(x) ? x : std::clamp(x + 3, 0.0, 6.0) / 6;
}
double hardswish(double x) {
  return x * hardsigmoid(x);
}
double softsign(double x) {
  return x / (1 + std::abs(x));
}
double quick_gelu(double x) {
  return x * sigmoid(1.702 * x);
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

double selu_backward(double y, double dy) {
  const double scale = 1.0507009873554804934193349852946;
  return dy * (y > 0 ? scale : y + scale * 1.6732632423543772848170429916717);
}
double mish_backward(double x, double dy) {
  const double t = std::tanh(std::log1p(std::exp(x)));
  return dy * (t + x * (1 - t * t) * sigmoid(x));
}
double hardsigmoid_backward(double y, double dy) {
  return y > 0 && y < 1 ? dy / 6 : 0;
}
double hardswish_backward(double x, double dy) {
  if (x <= -3) return 0;
  return x < 3 ? dy * (x / 3 + 0.5) : dy;
}
double softsign_backward(double x, double dy) {
  return dy / std::pow(1 + std::abs(x), 2);
}
double quick_gelu_backward(double x, double dy) {
  const double s = sigmoid(1.702 * x);
  return dy * (s + 1.702 * x * s * (1 - s));
}

double affine(double x, double, double scale, double shift) {
  return x * scale + shift;
}
double leaky_relu(double x, double, double slope, double) {
  return x > 0 ? x : x * slope;
}
double leaky_relu_backward(double y, double dy, double slope, double) {
  return y > 0 ? dy : dy * slope;
}
double elu(double x, double, double alpha, double) {
  return x > 0 ? x : alpha * std::expm1(x);
}
double elu_backward(double y, double dy, double alpha, double) {
  return y > 0 ? dy : dy * (y + alpha);
}
double softplus(double x, double, double beta, double threshold) {
  return x * beta > threshold ? x : std::log1p(std::exp(beta * x)) / beta;
}
double softplus_backward(double x, double dy, double beta, double threshold) {
  return x * beta > threshold ? dy : dy * sigmoid(beta * x);
}
double hardtanh(double x, double, double low, double high) {
  return std::isnan(x) ? x : std::clamp(x, low, high);
}
double hardtanh_backward(double x, double dy, double low, double high) {
  return x > low && x < high ? dy : 0;
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
    {"relu", relu},
    {"gelu", gelu},
    {"gelu_tanh", gelu_tanh},
    {"silu", silu},
    {"tanh", std::tanh},
    {"exp", std::exp},
    {"log", std::log},
    {"sqrt", std::sqrt},
    {"sigmoid", sigmoid},
    {"square", square},
    {"identity", identity},
    {"selu", selu},
    {"mish", mish},
    {"hardsigmoid", hardsigmoid},
    {"hardswish", hardswish},
    {"softsign", softsign},
    {"quick_gelu", quick_gelu},
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
    {"selu_backward", selu_backward},
    {"mish_backward", mish_backward},
    {"hardsigmoid_backward", hardsigmoid_backward},
    {"hardswish_backward", hardswish_backward},
    {"softsign_backward", softsign_backward},
    {"quick_gelu_backward", quick_gelu_backward},
};

constexpr Named<ParametrisedFunction> kParametrised[] = {
    {"affine", affine},
    {"leaky_relu", leaky_relu},
    {"leaky_relu_backward", leaky_relu_backward},
    {"elu", elu},
    {"elu_backward", elu_backward},
    {"softplus", softplus},
    {"softplus_backward", softplus_backward},
    {"hardtanh", hardtanh},
    {"hardtanh_backward", hardtanh_backward},
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

ParametrisedFunction reference_parametrised(std::string_view op) {
  for (const auto& row : kParametrised) {
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
