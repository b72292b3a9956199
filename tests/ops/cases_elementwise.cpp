// Element-wise ops: lengths around the width of vectors, one long enough for several threads.
#include <fmt/format.h>

#include "ops/case.h"

namespace dltrain {
namespace {

const Shape kLengths[] = {{1}, {3}, {17}, {33, 65}, {3, 5, 7, 2}, {70001}};

void add_unary(std::vector<OpCase>& cases, const std::string& op, Fill fill,
               const Attributes& attributes = {}) {
  for (const Shape& shape : kLengths) {
    cases.push_back({.name = fmt::format("{} {} {}", op, to_string(shape), to_string(attributes)),
                     .op = op,
                     .inputs = {case_tensor(shape, fill)},
                     .attributes = attributes});
  }
}

void add_pair(std::vector<OpCase>& cases, const std::string& op, Fill first,
              const Attributes& attributes = {}) {
  for (const Shape& shape : kLengths) {
    cases.push_back({.name = fmt::format("{} {} {}", op, to_string(shape), to_string(attributes)),
                     .op = op,
                     .inputs = {case_tensor(shape, first), case_tensor(shape)},
                     .attributes = attributes});
  }
}

// An activation and its gradient. `first`: what both are filled with, apart where there are kinks.
void add_activation(std::vector<OpCase>& cases, const std::string& op, Fill first,
                    const Attributes& attributes = {}) {
  add_unary(cases, op, first, attributes);
  add_pair(cases, op + "_backward", first, attributes);
}

void add_binary(std::vector<OpCase>& cases, const std::string& op) {
  const std::pair<Shape, Shape> shapes[] = {
      {{1}, {1}},
      {{17}, {17}},
      {{33, 65}, {33, 65}},
      {{70001}, {70001}},
      {{33, 65}, {65}},
      {{65}, {33, 65}},
      {{33, 65}, {33, 1}},
      {{33, 1}, {1, 65}},
      {{33, 65}, {1}},
      {{1}, {33, 65}},
      {{2, 3, 5, 7}, {5, 1}},
      {{2, 1, 5, 1}, {3, 1, 7}},
      {{2, 3, 5, 7}, {7}},
      {{2, 3, 1, 1}, {2, 3, 5, 7}},
  };
  for (const auto& [a, b] : shapes) {
    cases.push_back(
        {.name = fmt::format("{} {} and {}", op, to_string(a), to_string(b)),
         .op = op,
         .inputs = {case_tensor(a), case_tensor(b, op == "div" ? Fill::positive : Fill::normal)}});
  }
}

}  // namespace

void add_elementwise_cases(std::vector<OpCase>& cases) {
  add_unary(cases, "relu", Fill::apart);
  for (const char* op : {"gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "exp", "square"}) {
    add_unary(cases, op, Fill::normal);
  }
  add_unary(cases, "log", Fill::positive);
  add_unary(cases, "sqrt", Fill::positive);
  add_unary(cases, "affine", Fill::normal, {{"scale", -1.5}, {"shift", 0.25}});
  add_unary(cases, "affine", Fill::normal, {{"scale", 0.1}, {"shift", 0.0}});
  for (const char* op : {"mish", "softsign", "quick_gelu"}) {
    add_activation(cases, op, Fill::normal);
  }
  for (const char* op : {"selu", "hardswish", "hardsigmoid", "hardtanh"}) {
    add_activation(cases, op, Fill::apart);
  }
  add_activation(cases, "hardtanh", Fill::apart, {{"min_value", 0.0}, {"max_value", 6.0}});
  add_activation(cases, "leaky_relu", Fill::apart);
  add_activation(cases, "leaky_relu", Fill::apart, {{"negative_slope", 0.25}});
  add_activation(cases, "elu", Fill::apart);
  add_activation(cases, "elu", Fill::apart, {{"alpha", 0.5}});
  add_activation(cases, "softplus", Fill::normal);
  add_activation(cases, "softplus", Fill::apart, {{"beta", 2.0}, {"threshold", 200.0}});
  add_unary(cases, "identity", Fill::normal);
  add_unary(cases, "cast", Fill::normal, {{"dtype", std::string("f32")}});
  add_pair(cases, "relu_backward", Fill::apart);
  for (const char* op : {"gelu_backward", "gelu_tanh_backward", "silu_backward", "tanh_backward",
                         "sigmoid_backward"}) {
    add_pair(cases, op, Fill::normal);
  }
  for (const char* op : {"add", "sub", "mul", "div"}) add_binary(cases, op);
}

}  // namespace dltrain
