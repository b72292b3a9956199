// avg_pool2d, adaptive_max_pool2d and upsample2d with their gradients.
#include <fmt/format.h>

#include "ops/case.h"

namespace dltrain {
namespace {

using CasesImageMapsPair = std::vector<int64_t>;

// An op and its gradient, of the shape that its own rule gives.
void add_with_gradient_cases_image_maps(std::vector<OpCase>& cases, const std::string& op,
                                        const Shape& x, const Attributes& attributes,
                                        Fill fill = Fill::normal) {
  const std::string what = fmt::format("{} {}", to_string(x), to_string(attributes));
  const CaseInput input = case_tensor(x, fill);
  cases.push_back({op + " " + what, op, {input}, attributes});
  const Shape y = find_op(op)->output_specs(std::vector{input.spec}, attributes).front().shape;
  OpCase backward{.name = op + "_backward " + what,
                  .op = op + "_backward",
                  .inputs = {case_tensor(y)},
                  .attributes = attributes};
  backward.attributes.set("input_shape", as_integers(x));
  if (op == "adaptive_max_pool2d") {
    backward.inputs.push_back({{y, DType::i32}, Fill::position});
    cases.push_back({.name = "max_pool2d_tangent adaptive " + what,
                     .op = "max_pool2d_tangent",
                     .inputs = {case_tensor(x), backward.inputs.back()},
                     .attributes = backward.attributes});
  }
  cases.push_back(std::move(backward));
}

void add_average(std::vector<OpCase>& cases, const Shape& x, const CasesImageMapsPair& kernel,
                 const CasesImageMapsPair& stride, const CasesImageMapsPair& padding) {
  for (bool include : {true, false}) {
    add_with_gradient_cases_image_maps(cases, "avg_pool2d", x,
                                       {{"kernel", kernel},
                                        {"stride", stride},
                                        {"padding", padding},
                                        {"count_include_pad", include}});
  }
}

void add_average_ceil(std::vector<OpCase>& cases, const Shape& x, const CasesImageMapsPair& kernel,
                      const CasesImageMapsPair& stride, const CasesImageMapsPair& padding) {
  for (bool include : {true, false}) {
    add_with_gradient_cases_image_maps(cases, "avg_pool2d", x,
                                       {{"kernel", kernel},
                                        {"stride", stride},
                                        {"padding", padding},
                                        {"count_include_pad", include},
                                        {"ceil_mode", true}});
  }
}

void add_adaptive(std::vector<OpCase>& cases, const Shape& x, const CasesImageMapsPair& size) {
  add_with_gradient_cases_image_maps(cases, "avg_pool2d", x, {{"output_size", size}});
  add_with_gradient_cases_image_maps(cases, "adaptive_max_pool2d", x, {{"output_size", size}},
                                     Fill::apart);
}

void add_upsample(std::vector<OpCase>& cases, const Shape& x, const CasesImageMapsPair& size) {
  add_with_gradient_cases_image_maps(cases, "upsample2d", x,
                                     {{"output_size", size}, {"mode", "nearest"}});
  for (bool corners : {false, true}) {
    add_with_gradient_cases_image_maps(
        cases, "upsample2d", x,
        {{"output_size", size}, {"mode", "bilinear"}, {"align_corners", corners}});
  }
}

}  // namespace

void add_image_map_cases(std::vector<OpCase>& cases) {
  add_average(cases, {1, 1, 1, 1}, {1, 1}, {1, 1}, {0, 0});
  add_average(cases, {2, 6, 6, 3}, {2, 2}, {2, 2}, {0, 0});
  add_average(cases, {2, 9, 8, 17}, {3, 3}, {2, 2}, {1, 1});
  add_average(cases, {1, 7, 9, 1}, {3, 2}, {1, 2}, {1, 0});
  add_average(cases, {1, 8, 8, 3}, {2, 2}, {3, 3}, {0, 0});  // gaps between windows
  add_average(cases, {8, 28, 28, 6}, {2, 2}, {2, 2}, {0, 0});
  add_average_ceil(cases, {2, 7, 5, 3}, {2, 2}, {2, 2}, {0, 0});
  add_average_ceil(cases, {2, 8, 6, 3}, {3, 2}, {2, 3}, {1, 1});

  add_adaptive(cases, {2, 7, 7, 5}, {1, 1});
  add_adaptive(cases, {2, 7, 5, 17}, {3, 2});
  add_adaptive(cases, {1, 3, 4, 3}, {5, 4});  // windows that repeat
  add_adaptive(cases, {4, 20, 20, 8}, {7, 7});

  add_upsample(cases, {2, 3, 4, 3}, {6, 8});
  add_upsample(cases, {2, 5, 1, 17}, {7, 3});
  add_upsample(cases, {1, 7, 6, 2}, {4, 1});  // smaller
  add_upsample(cases, {4, 16, 16, 8}, {32, 32});
}

}  // namespace dltrain
