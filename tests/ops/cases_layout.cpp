// concat, slice, pad and transpose: with and without axes that merge, in f32 and i32.
#include <fmt/format.h>

#include "ops/case.h"

namespace dltrain {
namespace {

using CasesLayoutIntegers = std::vector<int64_t>;

CaseInput integers_cases_layout(const Shape& shape) {
  return {{shape, DType::i32}, Fill::labels, 1000};
}

void add_concat(std::vector<OpCase>& cases, const std::vector<Shape>& shapes, int64_t axis) {
  OpCase c{.name = fmt::format("concat axis {}", axis),
           .op = "concat",
           .inputs = {},
           .attributes = {{"axis", axis}}};
  for (const Shape& shape : shapes) {
    c.name += fmt::format(" {}", to_string(shape));
    c.inputs.push_back(case_tensor(shape));
  }
  cases.push_back(std::move(c));
}

void add_borders(std::vector<OpCase>& cases, const Shape& x, const CasesLayoutIntegers& before,
                 const CasesLayoutIntegers& after) {
  const Attributes attributes{{"before", before}, {"after", after}};
  const std::string what = fmt::format("{} {}", to_string(x), to_string(attributes));
  cases.push_back({"slice " + what, "slice", {case_tensor(x)}, attributes});
  cases.push_back({"slice of integers " + what, "slice", {integers_cases_layout(x)}, attributes});
  cases.push_back({"pad " + what, "pad", {case_tensor(x)}, attributes});
  Attributes filled = attributes;
  filled.set("value", 1.5);
  cases.push_back({"pad with a value " + what, "pad", {case_tensor(x)}, filled});
}

void add_transpose(std::vector<OpCase>& cases, const Shape& x,
                   const CasesLayoutIntegers& permutation) {
  const Attributes attributes{{"permutation", permutation}};
  const std::string what = fmt::format("{} {}", to_string(x), to_string(attributes));
  cases.push_back({"transpose " + what, "transpose", {case_tensor(x)}, attributes});
  cases.push_back(
      {"transpose of integers " + what, "transpose", {integers_cases_layout(x)}, attributes});
}

}  // namespace

void add_layout_cases(std::vector<OpCase>& cases) {
  add_concat(cases, {{3}}, 0);
  add_concat(cases, {{3}, {5}}, 0);
  add_concat(cases, {{2, 3}, {4, 3}, {1, 3}}, 0);
  add_concat(cases, {{7, 3}, {7, 5}}, 1);
  add_concat(cases, {{2, 5, 5, 3}, {2, 5, 5, 17}, {2, 5, 5, 1}}, 3);
  add_concat(cases, {{2, 3, 5, 4}, {2, 3, 2, 4}}, 2);
  add_concat(cases, {{60, 33, 16}, {60, 33, 16}}, 2);

  add_borders(cases, {5}, {1}, {2});
  add_borders(cases, {5}, {0}, {0});
  add_borders(cases, {4, 7}, {0, 2}, {0, 1});
  add_borders(cases, {2, 6, 5, 3}, {0, 1, 2, 0}, {0, 2, 1, 0});
  add_borders(cases, {3, 4, 5, 6}, {1, 0, 1, 2}, {1, 1, 0, 3});
  add_borders(cases, {40, 9, 9, 16}, {0, 1, 1, 0}, {0, 1, 1, 0});

  add_transpose(cases, {5}, {0});
  add_transpose(cases, {1, 1}, {1, 0});
  add_transpose(cases, {7, 5}, {1, 0});
  add_transpose(cases, {65, 130}, {1, 0});
  add_transpose(cases, {3, 4, 5, 6}, {0, 3, 1, 2});  // NHWC to NCHW
  add_transpose(cases, {3, 6, 4, 5}, {0, 2, 3, 1});  // and back
  add_transpose(cases, {3, 4, 5, 6}, {0, 2, 1, 3});  // rows of attention heads
  add_transpose(cases, {3, 4, 5, 6}, {3, 2, 1, 0});
  add_transpose(cases, {2, 3, 4, 5, 6}, {1, 4, 0, 3, 2});
  add_transpose(cases, {3, 1, 5, 1}, {3, 2, 0, 1});
  add_transpose(cases, {4, 20, 20, 33}, {0, 3, 1, 2});
}

}  // namespace dltrain
