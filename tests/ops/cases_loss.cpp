// softmax_cross_entropy, its gradient and both at once, loss_seed.
#include <fmt/format.h>

#include "ops/case.h"

namespace dltrain {
namespace {

void add_cases_loss(std::vector<OpCase>& cases, const Shape& logits, double smoothing,
                    double z_loss = 0, int64_t padding = 0) {
  const Shape targets(logits.dims().first(static_cast<size_t>(logits.rank() - 1)));
  const int64_t classes = logits[-1] - padding;
  const CaseInput x = case_tensor(logits), t{{targets, DType::i32}, Fill::labels, classes};
  Attributes attributes{{"ignore_index", int64_t{-100}}, {"label_smoothing", smoothing}};
  std::string what = fmt::format("{} smoothing {}", to_string(logits), smoothing);
  if (z_loss != 0) {
    attributes.set("z_loss", z_loss);
    what += fmt::format(" z_loss {}", z_loss);
  }
  if (padding != 0) {
    attributes.set("classes", classes);
    what += fmt::format(" padding {}", padding);
  }
  const CaseInput seed{{Shape{1}, DType::f64}, Fill::seed};
  const auto add = [&](const std::string& op, std::vector<CaseInput> inputs) {
    cases.push_back({op + " " + what, op, std::move(inputs), attributes});
  };
  add("softmax_cross_entropy", {x, t});
  add("softmax_cross_entropy_backward", {x, t, case_tensor(targets, Fill::positive), seed});
  add("softmax_cross_entropy_gradient", {x, t, seed});
  attributes.set("row_losses", true);
  what += " row losses";
  add("softmax_cross_entropy", {x, t});
  add("softmax_cross_entropy_gradient", {x, t, seed});
}

}  // namespace

void add_loss_cases(std::vector<OpCase>& cases) {
  add_cases_loss(cases, {1, 1}, 0);
  add_cases_loss(cases, {1, 3}, 0);
  add_cases_loss(cases, {17, 2}, 0);
  add_cases_loss(cases, {33, 10}, 0);
  add_cases_loss(cases, {33, 10}, 0.1);
  add_cases_loss(cases, {65, 17}, 0);
  add_cases_loss(cases, {3, 5, 33}, 0.1);
  add_cases_loss(cases, {9, 1000}, 0);
  add_cases_loss(cases, {512, 10}, 0);
  add_cases_loss(cases, {9, 1033}, 0.1);  // rows that begin anywhere
  add_cases_loss(cases, {4, 4096}, 0);
  add_cases_loss(cases, {33, 10}, 0, 0.01);
  add_cases_loss(cases, {5, 9, 41}, 0.1, 0.1);
  add_cases_loss(cases, {7, 24}, 0.1, 0.1, 5);
  add_cases_loss(cases, {3, 1104}, 0, 0, 7);
  add_cases_loss(cases, {9, 1104}, 0.1, 0.1, 7);

  // Classes 8 to 17 of 40, and the loss of three ranks.
  for (const Shape& logits : {Shape{33, 10}, Shape{3, 5, 10}, Shape{9, 1033}}) {
    const Shape targets(logits.dims().first(static_cast<size_t>(logits.rank() - 1)));
    const CaseInput x = case_tensor(logits, Fill::constant);
    const CaseInput t{{targets, DType::i32}, Fill::labels, logits[-1] + 30};
    const Attributes attributes{{"label_smoothing", 0.1},
                                {"z_loss", 0.01},
                                {"first_class", int64_t{8}},
                                {"all_classes", logits[-1] + 30}};
    const auto add = [&](const std::string& op, std::vector<CaseInput> inputs) {
      cases.push_back({op + " of a shard " + to_string(logits), op, std::move(inputs), attributes});
    };
    CaseInput parts = case_tensor({3 * targets.elements(), 5}, Fill::constant);
    parts.wide = true;
    add("cross_entropy_parts", {x, t});
    add("softmax_cross_entropy", {x, t, parts});
    cases.push_back(cases.back());
    cases.back().name += " row losses";
    cases.back().attributes.set("row_losses", true);
    add("softmax_cross_entropy_backward",
        {x, t, case_tensor(targets, Fill::positive), {{Shape{1}, DType::f64}, Fill::seed}});
  }

  cases.push_back({"loss_seed", "loss_seed", {case_state()}});
  cases.push_back({"loss_seed with a loss scale", "loss_seed", {case_state()}});
  cases.back().state.out.loss_scale = 1024;
  cases.push_back({"loss_seed that looks at the loss",
                   "loss_seed",
                   {case_state(), {{Shape{1}, DType::f64}, Fill::seed}}});
  cases.push_back({"loss_seed with weights",
                   "loss_seed",
                   {case_state(), {{Shape{2}, DType::f64}, Fill::seed}},
                   {{"weights", std::vector<double>{0.5, 0.25}}}});
  cases.back().state.out.loss_scale = 1024;
  cases.push_back({"loss_seed of a loss that is not finite",
                   "loss_seed",
                   {case_state(), {{Shape{1}, DType::f64}, Fill::not_finite}}});
}

}  // namespace dltrain
