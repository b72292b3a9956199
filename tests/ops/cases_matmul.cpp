// matmul: odd and even extents, every transposition, bias, fused activations, inputs of rank 3 and
// 4.
#include <fmt/format.h>

#include "ops/case.h"

namespace dltrain {
namespace {

struct Options {
  bool transpose_a = false, transpose_b = false, bias = false;
  const char* activation = "";
};

void add_cases_matmul(std::vector<OpCase>& cases, int64_t m, int64_t k, int64_t n,
                      const Options& o) {
  OpCase c{.name = fmt::format("matmul {}x{}·{}x{}", m, k, k, n), .op = "matmul", .inputs = {}};
  c.inputs = {case_tensor(o.transpose_a ? Shape{k, m} : Shape{m, k}),
              case_tensor(o.transpose_b ? Shape{n, k} : Shape{k, n})};
  if (o.transpose_a) {
    c.attributes.set("transpose_a", true);
    c.name += " transposed a";
  }
  if (o.transpose_b) {
    c.attributes.set("transpose_b", true);
    c.name += " transposed b";
  }
  if (o.bias) {
    c.inputs.push_back(case_tensor({n}));
    c.name += " bias";
  }
  if (*o.activation != '\0') {
    c.attributes.set("activation", std::string(o.activation));
    c.name += fmt::format(" {}", o.activation);
  }
  cases.push_back(std::move(c));
}

void add_shaped(std::vector<OpCase>& cases, const Shape& a, const Shape& b, const Options& o) {
  OpCase c{.name = fmt::format("matmul {}·{}", to_string(a), to_string(b)),
           .op = "matmul",
           .inputs = {case_tensor(a), case_tensor(b)},
           .attributes = {{"transpose_a", o.transpose_a}, {"transpose_b", o.transpose_b}}};
  if (o.bias) c.inputs.push_back(case_tensor({o.transpose_b ? b[0] : b[1]}));
  if (o.transpose_a) c.name += " transposed a";
  if (o.transpose_b) c.name += " transposed b";
  cases.push_back(std::move(c));
}

// matmul_gelu with and without a bias, and its backward.
void add_gelu_cases(std::vector<OpCase>& cases, const Shape& a, int64_t n, bool tb) {
  const int64_t k = a[-1];
  Shape y = a;
  y[-1] = n;
  for (const char* op : {"matmul_gelu", "matmul_gelu_backward"}) {
    OpCase c{.name = fmt::format("{} {}·{}{}", op, to_string(a), n, tb ? " transposed b" : ""),
             .op = op,
             .inputs = {case_tensor(a), case_tensor(tb ? Shape{n, k} : Shape{k, n})},
             .attributes = {{"transpose_b", tb}},
             .roundings = 2};
    if (c.op == "matmul_gelu") {
      cases.push_back(c);
      c.name += " bias";
    }
    c.inputs.push_back(case_tensor(c.op == "matmul_gelu" ? Shape{n} : y));
    cases.push_back(std::move(c));
  }
}

}  // namespace

void add_matmul_cases(std::vector<OpCase>& cases) {
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      for (bool bias : {false, true}) {
        add_cases_matmul(cases, 1, 1, 1, {ta, tb, bias});
        add_cases_matmul(cases, 3, 17, 1, {ta, tb, bias});
        add_cases_matmul(cases, 1, 33, 17, {ta, tb, bias});
        add_cases_matmul(cases, 17, 1, 3, {ta, tb, bias});
        add_cases_matmul(cases, 33, 65, 17, {ta, tb, bias});
        add_cases_matmul(cases, 64, 64, 64, {ta, tb, bias});
      }
      add_shaped(cases, ta ? Shape{3, 5, 7} : Shape{3, 7, 5},
                 tb ? Shape{9, ta ? 15 : 5} : Shape{ta ? 15 : 5, 9}, {ta, tb, !ta});
    }
  }
  add_shaped(cases, {2, 3, 4, 5}, {7, 5}, {.transpose_b = true, .bias = true});
  for (const char* activation : {"relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"}) {
    add_cases_matmul(cases, 33, 17, 65, {.bias = true, .activation = activation});
    add_cases_matmul(cases, 3, 17, 5, {.transpose_b = true, .activation = activation});
  }
  add_cases_matmul(cases, 128, 785, 100, {.transpose_b = true, .bias = true, .activation = "relu"});
  // Large enough for packed panels: several blocks of rows and of the inner axis, with odd ends.
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      add_cases_matmul(cases, 70, 132, 110, {ta, tb, true});
      add_cases_matmul(cases, 530, 90, 61, {ta, tb, !ta});
    }
  }
  add_cases_matmul(cases, 521, 1101, 50, {.transpose_a = true, .transpose_b = true});
  add_cases_matmul(cases, 100, 128, 785, {.transpose_a = true});  // a weight gradient
  OpCase optional = cases.back();
  optional.name = "matmul with an absent bias";
  optional.inputs.push_back(case_absent());
  cases.push_back(std::move(optional));
  OpCase weight = cases[cases.size() - 2];
  weight.name = "matmul with an output dtype";
  weight.attributes.set("output_dtype", std::string("f32"));
  cases.push_back(std::move(weight));
  for (bool tb : {false, true}) {
    add_gelu_cases(cases, {7, 24}, 5, tb);
    add_gelu_cases(cases, {3, 40, 64}, 136, tb);
  }
}

}  // namespace dltrain
