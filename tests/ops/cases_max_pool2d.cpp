// max_pool2d and its gradient: disjoint, overlapping and padded windows.
#include <fmt/format.h>

#include "ops/case.h"
#include "ops/op.h"

namespace dltrain {
namespace {

using CasesMaxPool2dPair = std::vector<int64_t>;

void add_cases_max_pool2d(std::vector<OpCase>& cases, const Shape& x,
                          const CasesMaxPool2dPair& kernel, const CasesMaxPool2dPair& stride,
                          const CasesMaxPool2dPair& padding, bool ceil = false) {
  Attributes attributes{{"kernel", kernel}, {"stride", stride}, {"padding", padding}};
  if (ceil) attributes.set("ceil_mode", true);
  const std::string geometry =
      fmt::format("{} kernel {}x{} stride {}x{} padding {}x{}{}", to_string(x), kernel[0],
                  kernel[1], stride[0], stride[1], padding[0], padding[1], ceil ? " ceil" : "");
  const CaseInput input = case_tensor(x, Fill::apart);
  cases.push_back({"max_pool2d " + geometry, "max_pool2d", {input}, attributes});
  const Shape y =
      find_op("max_pool2d")->output_specs(std::vector{input.spec}, attributes).front().shape;
  attributes.set("input_shape", as_integers(x));
  cases.push_back({"max_pool2d_backward " + geometry,
                   "max_pool2d_backward",
                   {case_tensor(y), {{y, DType::u8}, Fill::position}},
                   attributes});
  cases.push_back({"max_pool2d_tangent " + geometry,
                   "max_pool2d_tangent",
                   {case_tensor(x), {{y, DType::u8}, Fill::position}},
                   attributes});
}

}  // namespace

void add_max_pool2d_cases(std::vector<OpCase>& cases) {
  add_cases_max_pool2d(cases, {1, 1, 1, 1}, {1, 1}, {1, 1}, {0, 0});
  add_cases_max_pool2d(cases, {2, 6, 6, 3}, {2, 2}, {2, 2}, {0, 0});
  add_cases_max_pool2d(cases, {2, 7, 5, 17}, {2, 2}, {2, 2}, {0, 0});  // rows and columns left over
  add_cases_max_pool2d(cases, {2, 9, 8, 5}, {3, 3}, {2, 2}, {1, 1});   // overlapping, as in ResNet
  add_cases_max_pool2d(cases, {2, 8, 8, 4}, {3, 3}, {1, 1}, {1, 1});
  add_cases_max_pool2d(cases, {1, 7, 9, 1}, {3, 2}, {1, 2}, {1, 0});
  add_cases_max_pool2d(cases, {1, 9, 9, 2}, {5, 5}, {1, 1}, {2, 2});
  add_cases_max_pool2d(cases, {1, 8, 8, 3}, {2, 2}, {3, 3}, {0, 0});  // gaps between windows
  add_cases_max_pool2d(cases, {8, 28, 28, 6}, {2, 2}, {2, 2}, {0, 0});
  add_cases_max_pool2d(cases, {2, 9, 9, 24}, {3, 3}, {2, 2}, {1, 1});  // whole packs of channels
  add_cases_max_pool2d(cases, {2, 7, 5, 17}, {2, 2}, {2, 2}, {0, 0},
                       true);  // the last windows are cut
  add_cases_max_pool2d(cases, {2, 8, 7, 5}, {3, 3}, {2, 2}, {0, 0}, true);
  add_cases_max_pool2d(cases, {2, 8, 6, 3}, {3, 2}, {2, 3}, {1, 1}, true);
}

}  // namespace dltrain
