// weighted_cross_entropy and elementwise_loss with their gradients, and the sums of metrics.
#include <fmt/format.h>

#include "ops/case.h"

namespace dltrain {
namespace {

const CaseInput kSeed{{Shape{1}, DType::f64}, Fill::seed};

Shape rows_of(const Shape& logits) {
  return Shape(logits.dims().first(static_cast<size_t>(logits.rank() - 1)));
}

void add_with_gradient_cases_losses(std::vector<OpCase>& cases, const std::string& op,
                                    const std::string& what, std::vector<CaseInput> inputs,
                                    std::vector<CaseInput> for_backward,
                                    const Attributes& attributes) {
  cases.push_back({fmt::format("{} {}", op, what), op, inputs, attributes});
  inputs.insert(inputs.end(), for_backward.begin(), for_backward.end());
  inputs.push_back(kSeed);
  const std::string backward = fmt::format("{}_backward", op);
  cases.push_back({fmt::format("{} {}", backward, what), backward, inputs, attributes});
}

void add_cross_entropy(std::vector<OpCase>& cases, const Shape& logits, bool labels,
                       const Attributes& attributes) {
  const Shape rows = rows_of(logits);
  const CaseInput targets = labels ? CaseInput{{rows, DType::i32}, Fill::labels, logits[-1]}
                                   : case_tensor(logits, Fill::distributions);
  add_with_gradient_cases_losses(cases, "weighted_cross_entropy",
                                 fmt::format("{} {} {}", labels ? "labels" : "distributions",
                                             to_string(logits), to_string(attributes)),
                                 {case_tensor(logits), targets},
                                 {case_tensor(rows, Fill::positive)}, attributes);
}

// Distributions beside labels, some of which say that the row does not count.
void add_masked_cross_entropy(std::vector<OpCase>& cases, const Shape& logits) {
  const Shape rows = rows_of(logits);
  const CaseInput labels{{rows, DType::i32}, Fill::labels, logits[-1]};
  const CaseInput targets = case_tensor(logits, Fill::distributions);
  const std::string what = fmt::format("distributions beside labels {}", to_string(logits));
  const Attributes attributes{{"relative", true}, {"scale", 4.0}};
  cases.push_back({fmt::format("weighted_cross_entropy {}", what),
                   "weighted_cross_entropy",
                   {case_tensor(logits), targets, labels},
                   attributes});
  cases.push_back({fmt::format("weighted_cross_entropy_backward {}", what),
                   "weighted_cross_entropy_backward",
                   {case_tensor(logits), targets, case_tensor(rows, Fill::positive), kSeed, labels},
                   attributes});
}

void add_elementwise(std::vector<OpCase>& cases, const Shape& shape, const Attributes& attributes) {
  const bool binary = attributes.text("kind") == "binary_cross_entropy";
  add_with_gradient_cases_losses(
      cases, "elementwise_loss", fmt::format("{} {}", to_string(shape), to_string(attributes)),
      {case_tensor(shape), case_tensor(shape, binary ? Fill::shares : Fill::targets)}, {},
      attributes);
}

void add_metric_sums(std::vector<OpCase>& cases, const Shape& logits) {
  const CaseInput labels{{rows_of(logits), DType::i32}, Fill::labels, logits[-1]};
  const std::string what = to_string(logits);
  cases.push_back({fmt::format("confusion_matrix {}", what),
                   "confusion_matrix",
                   {case_tensor(logits), labels}});
  for (int64_t k : {1, 2, 5}) {
    cases.push_back({fmt::format("top_k_correct {} k {}", what, k),
                     "top_k_correct",
                     {case_tensor(logits), labels},
                     {{"k", k}}});
  }
  CaseInput losses = case_tensor(rows_of(logits), Fill::constant);
  losses.spec.dtype = DType::f64;
  cases.push_back({fmt::format("source_sums {}", what),
                   "source_sums",
                   {losses, labels, {{rows_of(logits), DType::i32}, Fill::ids, 3}},
                   {{"sources", int64_t{3}}}});
  cases.push_back({fmt::format("regression_sums {}", what),
                   "regression_sums",
                   {case_tensor(logits), case_tensor(logits, Fill::targets)}});
  cases.push_back({fmt::format("binary_counts {}", what),
                   "binary_counts",
                   {case_tensor(logits), case_tensor(logits, Fill::shares)}});
}

}  // namespace

void add_losses_cases(std::vector<OpCase>& cases) {
  const std::vector<double> three{0.25, 1, 3};
  std::vector<double> many;
  for (int k = 0; k < 33; ++k) many.push_back(0.1 * (k + 1));
  for (const bool labels : {true, false}) {
    add_cross_entropy(cases, {1, 1}, labels, {});
    add_cross_entropy(cases, {17, 3}, labels, {});
    add_cross_entropy(cases, {17, 3}, labels, {{"class_weights", three}});
    add_cross_entropy(cases, {17, 3}, labels,
                      {{"class_weights", three}, {"label_smoothing", 0.2}, {"scale", 4.0}});
    add_cross_entropy(cases, {3, 5, 33}, labels,
                      {{"class_weights", many}, {"label_smoothing", 0.1}});
    add_cross_entropy(cases, {9, 1000}, labels, {{"label_smoothing", 0.1}});
  }
  add_cross_entropy(cases, {17, 10}, false, {{"relative", true}});
  add_cross_entropy(cases, {65, 17}, false, {{"relative", true}, {"scale", 9.0}});
  add_masked_cross_entropy(cases, {17, 3});
  add_masked_cross_entropy(cases, {4, 5, 33});

  for (const char* kind : {"mse", "l1", "huber", "smooth_l1", "binary_cross_entropy"}) {
    add_elementwise(cases, {1, 1}, {{"kind", std::string(kind)}});
    add_elementwise(cases, {33, 3}, {{"kind", std::string(kind)}, {"delta", 0.7}});
    add_elementwise(cases, {2, 5, 4097}, {{"kind", std::string(kind)}, {"delta", 1.5}});
  }
  add_elementwise(cases, {9}, {{"kind", std::string("mse")}});
  add_elementwise(cases, {17, 3},
                  {{"kind", std::string("binary_cross_entropy")}, {"pos_weight", three}});
  add_elementwise(
      cases, {17, 5},
      {{"kind", std::string("binary_cross_entropy")}, {"pos_weight", std::vector<double>{2.5}}});

  add_metric_sums(cases, {1, 2});
  add_metric_sums(cases, {33, 10});
  add_metric_sums(cases, {3, 5, 7});
  // With rows of NaN.
  const CaseInput logits = case_tensor({33, 10}, Fill::distributions);
  const CaseInput labels{{Shape{33}, DType::i32}, Fill::ids, 10};
  cases.push_back({"confusion_matrix with NaN", "confusion_matrix", {logits, labels}});
  cases.push_back(
      {"top_k_correct with NaN", "top_k_correct", {logits, labels}, {{"k", int64_t{2}}}});
}

}  // namespace dltrain
