// layer_norm, rms_norm and group_norm with their gradients, with and without weight and bias.
#include <fmt/format.h>

#include "ops/case.h"

namespace dltrain {
namespace {

CaseInput statistic(const Shape& x, Fill fill = Fill::normal) {
  return case_tensor(Shape(x.dims().first(static_cast<size_t>(x.rank() - 1))), fill);
}

void add_layer_norm(std::vector<OpCase>& cases, const Shape& x, bool weight, bool bias) {
  const Shape channels{x[-1]};
  const CaseInput in = case_tensor(x),
                  w = weight ? case_tensor(channels, Fill::positive) : case_absent(),
                  b = bias ? case_tensor(channels) : case_absent();
  const Attributes epsilon{{"epsilon", 1e-5}};
  Attributes backward = epsilon;
  backward.set("bias", bias);
  const std::string what =
      fmt::format("{}{}{}", to_string(x), weight ? " weight" : "", bias ? " bias" : "");
  cases.push_back({"layer_norm " + what, "layer_norm", {in, w, b}, epsilon});
  cases.push_back({"layer_norm_backward " + what,
                   "layer_norm_backward",
                   {in, case_tensor(x), w, statistic(x), statistic(x, Fill::positive)},
                   backward});
  if (bias) return;
  cases.push_back({"rms_norm " + what, "rms_norm", {in, w}, epsilon});
  cases.push_back({"rms_norm_backward " + what,
                   "rms_norm_backward",
                   {in, case_tensor(x), w, statistic(x, Fill::positive)},
                   epsilon});
}

void add_group_norm(std::vector<OpCase>& cases, const Shape& x, int64_t groups) {
  const Shape channels{x[-1]}, statistics{x[0], groups};
  const Attributes attributes{{"epsilon", 1e-5}, {"groups", groups}};
  const std::string what = fmt::format("{} groups {}", to_string(x), groups);
  const CaseInput w = case_tensor(channels, Fill::positive);
  cases.push_back(
      {"group_norm " + what, "group_norm", {case_tensor(x), w, case_tensor(channels)}, attributes});
  cases.push_back({"group_norm_backward " + what,
                   "group_norm_backward",
                   {case_tensor(x), case_tensor(x), w, case_tensor(statistics),
                    case_tensor(statistics, Fill::positive)},
                   attributes});
  const CaseInput none = case_absent();
  cases.push_back(
      {"group_norm plain " + what, "group_norm", {case_tensor(x), none, none}, attributes});
  cases.push_back({"group_norm_backward plain " + what,
                   "group_norm_backward",
                   {case_tensor(x), case_tensor(x), none, case_tensor(statistics),
                    case_tensor(statistics, Fill::positive)},
                   attributes});
}

}  // namespace

void add_layer_norm_cases(std::vector<OpCase>& cases) {
  for (const Shape& x : {Shape{1, 2}, Shape{33, 17}, Shape{2, 3, 5, 64}, Shape{70, 768}}) {
    add_layer_norm(cases, x, true, true);
    add_layer_norm(cases, x, true, false);
    add_layer_norm(cases, x, false, false);
    add_layer_norm(cases, x, false, true);
  }
  add_group_norm(cases, {3, 8}, 2);
  add_group_norm(cases, {2, 5, 7, 6}, 1);
  add_group_norm(cases, {2, 5, 7, 6}, 3);
  add_group_norm(cases, {2, 5, 7, 6}, 6);
  add_group_norm(cases, {3, 4, 4, 34}, 17);
  add_group_norm(cases, {2, 40, 40, 32}, 8);  // several chunks a sample
}

}  // namespace dltrain
