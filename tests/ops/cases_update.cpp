// gradient_norm and the optimizers: several tensors at once, clipping, loss scale, steps that are
// not finite.
#include <fmt/format.h>

#include "ops/case.h"

namespace dltrain {
namespace {

const std::vector<Shape> kTensors = {{33, 17}, {17}, {1}, {3, 3, 3, 5}, {70001}};

void add_norm(std::vector<OpCase>& cases, const std::string& what, double limit, double scale,
              Fill last) {
  OpCase c{"gradient_norm " + what, "gradient_norm", {case_state()}};
  for (const Shape& shape : kTensors) c.inputs.push_back(case_tensor(shape));
  c.inputs.back().fill = last;
  c.state.in.max_grad_norm = limit;
  c.state.out.loss_scale = scale;
  cases.push_back(std::move(c));
}

// One step of dynamic loss scaling; the scale may halve, stay or double.
void add_scaled_norm(std::vector<OpCase>& cases, const std::string& what, double scale,
                     int64_t streak, Fill last) {
  add_norm(cases, what, 0, scale, last);
  cases.back().state.in.scale_growth_interval = 3;
  cases.back().state.out.scale_streak = streak;
}

void add_role(OpCase& c, Fill fill) {
  for (const Shape& shape : kTensors) c.inputs.push_back(case_tensor(shape, fill));
}

void add_sgd(std::vector<OpCase>& cases, const std::string& what, double momentum, bool nesterov,
             double decay, bool finite = true) {
  OpCase c{.name = "sgd_update " + what,
           .op = "sgd_update",
           .inputs = {case_state()},
           .attributes = {{"count", static_cast<int64_t>(kTensors.size())},
                          {"momentum", momentum},
                          {"nesterov", nesterov},
                          {"weight_decay", decay}}};
  for (int role = 0; role < (momentum != 0 ? 3 : 2); ++role) add_role(c, Fill::normal);
  c.state.out.finite = finite ? 1 : 0;
  cases.push_back(std::move(c));
}

void add_adamw(std::vector<OpCase>& cases, const std::string& what, int64_t updates, double decay,
               bool finite = true) {
  OpCase c{.name = "adamw_update " + what,
           .op = "adamw_update",
           .inputs = {case_state()},
           .attributes = {{"count", static_cast<int64_t>(kTensors.size())},
                          {"beta1", 0.9},
                          {"beta2", 0.95},
                          {"epsilon", 1e-8},
                          {"weight_decay", decay}}};
  for (Fill fill : {Fill::normal, Fill::normal, Fill::normal, Fill::positive}) add_role(c, fill);
  c.state.out.updates = updates;
  c.state.out.finite = finite ? 1 : 0;
  cases.push_back(std::move(c));
}

void add_copies(std::vector<OpCase>& cases, DType dtype, bool finite) {
  OpCase c{.name = fmt::format("low_precision_update to {}{}", dtype_name(dtype),
                               finite ? "" : " of a step that is not finite"),
           .op = "low_precision_update",
           .inputs = {case_state()},
           .attributes = {{"count", static_cast<int64_t>(kTensors.size())}}};
  add_role(c, Fill::normal);
  add_role(c, Fill::normal);
  for (size_t i = 0; i < kTensors.size(); ++i) {
    c.inputs[1 + kTensors.size() + i].spec.dtype = dtype;
  }
  c.state.out.finite = finite ? 1 : 0;
  cases.push_back(std::move(c));
}

}  // namespace

void add_update_cases(std::vector<OpCase>& cases) {
  add_norm(cases, "without clipping", 0, 1, Fill::normal);
  add_norm(cases, "clipped to 1", 1, 1, Fill::normal);
  add_norm(cases, "below the limit", 1e6, 1, Fill::normal);
  add_norm(cases, "clipped, with a loss scale", 0.5, 1024, Fill::normal);
  add_norm(cases, "with an infinity", 1, 1, Fill::not_finite);
  add_scaled_norm(cases, "whose scale stays", 1024, 1, Fill::normal);
  add_scaled_norm(cases, "whose scale doubles", 1024, 2, Fill::normal);
  add_scaled_norm(cases, "whose scale is at its limit", 16777216, 2, Fill::normal);
  add_scaled_norm(cases, "whose scale halves", 1024, 2, Fill::not_finite);
  add_scaled_norm(cases, "whose scale cannot fall", 1, 2, Fill::not_finite);

  add_sgd(cases, "plain", 0, false, 0);
  add_sgd(cases, "with decay", 0, false, 0.01);
  add_sgd(cases, "with momentum", 0.9, false, 0);
  add_sgd(cases, "with momentum and decay", 0.9, false, 0.01);
  add_sgd(cases, "nesterov with decay", 0.9, true, 0.01);
  add_sgd(cases, "of a step that is not finite", 0.9, true, 0.01, false);

  add_adamw(cases, "in its first update", 1, 0);
  add_adamw(cases, "with decay", 1, 0.1);
  add_adamw(cases, "in its fifth update with decay", 5, 0.1);
  add_adamw(cases, "in update 100000", 100000, 0.1);
  add_adamw(cases, "of a step that is not finite", 4, 0.1, false);

  for (DType dtype : {DType::bf16, DType::f16}) {
    add_copies(cases, dtype, true);
    add_copies(cases, dtype, false);
  }
}

}  // namespace dltrain
