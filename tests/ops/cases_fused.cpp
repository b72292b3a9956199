// fused_elementwise: every step kind, operands of several dtypes.
#include <fmt/format.h>

#include "ops/case.h"
#include "ops/fused.h"

namespace dltrain {
namespace {

void add_cases_fused(std::vector<OpCase>& cases, const std::string& what,
                     const std::vector<Fill>& fills, const std::vector<FusedStep>& steps) {
  for (const Shape& shape : {Shape{1}, Shape{17}, Shape{33, 65}, Shape{40001}}) {
    OpCase c{.name = fmt::format("fused {} {}", what, to_string(shape)),
             .op = "fused_elementwise",
             .inputs = {},
             .attributes = {{"program", print_fused_program(steps)}}};
    for (Fill fill : fills) c.inputs.push_back(case_tensor(shape, fill));
    cases.push_back(std::move(c));
  }
}

// With casts fused: every second input is f32 in 16-bit runs too.
void add_mixed(std::vector<OpCase>& cases, const std::string& what, const std::vector<Fill>& fills,
               const std::vector<FusedStep>& steps) {
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    const size_t first = cases.size();
    add_cases_fused(cases, fmt::format("{} to {}", what, dtype), fills, steps);
    for (size_t i = first; i < cases.size(); ++i) {
      cases[i].attributes.set("output_dtype", std::string(dtype));
      for (size_t k = 1; k < fills.size(); k += 2) cases[i].inputs[k].wide = true;
    }
  }
}

}  // namespace

void add_fused_cases(std::vector<OpCase>& cases) {
  add_cases_fused(cases, "relu_backward and affine", {Fill::apart, Fill::normal},
                  {{"relu_backward", {0, 1}}, {"affine", {2}, 0.5, 0.1}});
  add_cases_fused(cases, "gelu of a sum", {Fill::normal, Fill::normal},
                  {{"add", {0, 1}}, {"gelu", {2}}});
  add_cases_fused(cases, "a use of one operand twice", {Fill::normal},
                  {{"mul", {0, 0}}, {"sub", {1, 0}}, {"affine", {2}, -1.0 / 3, 1e-9}});
  add_cases_fused(cases, "all functions", {Fill::positive, Fill::normal},
                  {{"log", {0}},
                   {"sqrt", {0}},
                   {"mul", {2, 3}},
                   {"tanh", {4}},
                   {"sigmoid", {1}},
                   {"silu", {1}},
                   {"div", {5, 0}},
                   {"add", {6, 7}},
                   {"gelu_tanh", {9}},
                   {"exp", {1}},
                   {"add", {10, 11}},
                   {"square", {8}},
                   {"identity", {13}},
                   {"sub", {12, 14}}});
  add_cases_fused(cases, "activations with parameters", {Fill::apart, Fill::normal},
                  {{"leaky_relu", {0}, 0.2},
                   {"elu", {0}, 0.7},
                   {"hardtanh", {0}, -0.75, 1.5},
                   {"softplus", {1}, 2, 20},
                   {"leaky_relu_backward", {2, 3}, 0.2},
                   {"elu_backward", {3, 4}, 0.7},
                   {"hardtanh_backward", {0, 5}, -0.75, 1.5},
                   {"softplus_backward", {1, 6}, 2, 20},
                   {"add", {7, 8}},
                   {"add", {9, 10}}});
  add_mixed(cases, "a residual", {Fill::normal, Fill::normal}, {{"add", {0, 1}}});
  add_mixed(cases, "several dtypes", {Fill::normal, Fill::positive, Fill::apart, Fill::normal},
            {{"mul", {0, 1}}, {"gelu", {2}}, {"sub", {4, 5}}, {"add", {6, 3}}, {"relu", {7}}});
  add_cases_fused(cases, "all gradients", {Fill::normal, Fill::normal},
                  {{"gelu_backward", {0, 1}},
                   {"gelu_tanh_backward", {0, 2}},
                   {"silu_backward", {0, 3}},
                   {"tanh_backward", {0, 4}},
                   {"sigmoid_backward", {0, 5}},
                   {"relu", {6}}});
}

}  // namespace dltrain
