// layer_norm, rms_norm and group_norm with their gradients, with and without weight and bias.
#include <algorithm>

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

// Norms that do what their neighbours would do: with x in f32 (`wide`) beside 16-bit tensors.
void add_joined_norm(std::vector<OpCase>& cases, const Shape& x, bool wide) {
  CaseInput in = case_tensor(x), low = in;
  in.wide = wide;
  CaseInput w = case_tensor(Shape{x[-1]}, Fill::positive), none = case_absent();
  w.wide = true;
  CaseInput mean = statistic(x), rstd = statistic(x, Fill::positive);
  mean.wide = rstd.wide = true;
  const size_t first = cases.size();
  for (const char* dtype : {"", "bf16", "f16"}) {
    Attributes a{{"epsilon", 1e-5}};
    if (*dtype != 0) a.set("output_dtype", std::string(dtype));
    const std::string what = fmt::format("{}{} to {}", to_string(x), wide ? " wide" : "", dtype);
    cases.push_back({"rms_norm joined " + what, "rms_norm", {in, w, low}, a});
    cases.push_back({"layer_norm plain joined " + what, "layer_norm", {in, none, none, in}, a});
    cases.push_back(
        {"rms_norm_backward joined " + what, "rms_norm_backward", {in, low, w, rstd, in}, a});
    a.set("adds_to_dy", true);
    cases.push_back(
        {"rms_norm_backward of a sum " + what, "rms_norm_backward", {in, low, w, rstd, in}, a});
    a.erase("adds_to_dy");
    a.set("wide", true);
    cases.push_back({"layer_norm joined " + what, "layer_norm", {in, w, w, low}, a});
    cases.push_back({"layer_norm wide " + what, "layer_norm", {in, w, w}, a});
    a.erase("wide");
    a.set("bias", true);
    cases.push_back({"layer_norm_backward joined " + what,
                     "layer_norm_backward",
                     {in, low, w, mean, rstd, in},
                     a});
    a.set("adds_to_dy", true);
    cases.push_back({"layer_norm_backward of a sum " + what,
                     "layer_norm_backward",
                     {in, low, w, mean, rstd, in},
                     a});
  }
  for (size_t i = first; i < cases.size(); ++i) {
    cases[i].one_low_dtype = true;
    cases[i].roundings = 2;  // x + delta, which is stored, and what is made of it
  }
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
  for (const bool wide : {false, true}) {
    for (const Shape& x : {Shape{5, 17}, Shape{300, 64}, Shape{3, 2, 1032}}) {
      add_joined_norm(cases, x, wide);
    }
  }
  // Several rows for each block of the backward.
  OpCase rows = *std::ranges::find(cases, "layer_norm_backward of a sum [3, 2, 1032] wide to bf16",
                                   &OpCase::name);
  rows.name = "layer_norm_backward of many rows";
  for (const size_t i : {0, 1, 5}) rows.inputs[i].spec.shape = Shape{1100, 1032};
  for (const size_t i : {3, 4}) rows.inputs[i].spec.shape = Shape{1100};
  cases.push_back(rows);
  rows.name += ", the residual added to dx";
  rows.attributes.erase("adds_to_dy");
  cases.push_back(std::move(rows));
  add_layer_norm(cases, {3, 4200}, true, true);  // more packs than a block has threads
  add_layer_norm(cases, {2, 1027}, true, false);
  add_group_norm(cases, {3, 8}, 2);
  add_group_norm(cases, {2, 5, 7, 6}, 1);
  add_group_norm(cases, {2, 5, 7, 6}, 3);
  add_group_norm(cases, {2, 5, 7, 6}, 6);
  add_group_norm(cases, {3, 4, 4, 34}, 17);
  add_group_norm(cases, {2, 40, 40, 32}, 8);  // several chunks a sample
}

}  // namespace dltrain
