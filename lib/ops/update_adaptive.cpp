// Optimizers whose step depends on norms or sums of whole tensors. Inputs, names and the attributes
// that all optimizers share are those of update.cpp. The sums of LARS and LAMB are an op of their
// own, f64 [2] for each tensor: where ranks hold ranges of tensors, they add their sums up before
// the step (passes/zero.h). In a step that is not finite they are 0.
//
// lars_sums(step_state, p, g): Σp² and Σg².
// lars_update(…, [m], sums): You, Gitman & Ginsburg 2017, with the learning rate outside of the
//   velocity (as NVIDIA's and timm's): trust = trust_coefficient·‖p‖ / (‖g‖ + λ‖p‖ + epsilon) for
//   each tensor, 1 where λ or a norm is 0; m ← momentum·m + trust·(g + λp); p ← p − lr·m.
//   Attributes: momentum, trust_coefficient, epsilon; always_adapt (boolean, false): trust where λ
//   is 0 too.
// lamb_moments(step_state, p, g, m, v): You et al. 2020, algorithm 2: m and v as Adam's, Σp² and
//   Σu², u = (m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + epsilon) + λp.
// lamb_update(step_state, p, m, v, sums): trust = ‖p‖/‖u‖ for each tensor, 1 where λ or
//   a norm is 0; p ← p − lr·trust·u. Attributes: beta1, beta2, epsilon, always_adapt.
// Adafactor: Shazeer & Stern 2018, algorithms 4 and 5 without momentum, as torch.optim.Adafactor. A
// tensor of two axes and more is a matrix of its first axis by all others (PyTorch splits before
// the last axis: the same for matrices). ρ = t^beta2_decay. adafactor_sums(step_state, p, g): f64
// [1 + rows + columns]: Σp², Σg² of each row, of each column;
//   [1] for another tensor: Σp².
// adafactor_moments(step_state, p, g, r, c, sums): r ← r + ρ·(mean of g² over a row − r),
//   c ← c + ρ·(mean of g² over a column − c); and Σu², f64 [1], with u = g / √max(v, epsilon1²),
//   v = r·c / max(mean r, epsilon1). Other tensors keep v itself in place of r,
//   v ← v + ρ·(g² − v), and no c.
// adafactor_update(step_state, p, g, r, c, sums, squares): p ← (1 − lr·λ)p −
//   max(epsilon2, RMS p)·min(lr, 1/√t) / max(1, RMS u / d) · u, RMS p before the decay.
//   Attributes of the three: beta2_decay, epsilon1, epsilon2, d; range: for each tensor [begin,
//   rows, columns] where p, g (and v) are elements from `begin` on of a tensor of so many rows (0:
//   one axis) and columns; absent: p and g are whole.
#include <algorithm>

#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/update.h"

namespace dltrain {

AdafactorMatrix adafactor_matrix(const Attributes& attributes, size_t tensor, const Shape& p) {
  const std::vector<int64_t> range = attributes.integers("range");
  if (!range.empty()) {
    const int64_t rows = range[3 * tensor + 1], columns = range[3 * tensor + 2];
    return {rows > 0, std::max<int64_t>(rows, 1), columns, range[3 * tensor], p.elements()};
  }
  if (p.rank() < 2) return {false, 1, p.elements(), 0, p.elements()};
  return {true, p[0], p.elements(1, p.rank()), 0, p.elements()};
}

namespace {

size_t tensors_of(const Attributes& attributes) {
  return static_cast<size_t>(attributes.integer("count", 1));
}

// The roles of tensors that an op writes in place, and whether it makes sums.
std::vector<int> aliases_of_roles(const Attributes& attributes, std::initializer_list<int> roles,
                                  bool sums) {
  const int count = static_cast<int>(tensors_of(attributes));
  std::vector<int> out;
  for (int role : roles) {
    for (int i = 0; i < count; ++i) out.push_back(1 + role * count + i);
  }
  if (sums) out.resize(out.size() + static_cast<size_t>(count), -1);
  return out;
}
SpecList written_by(SpecSpan inputs, const std::vector<int>& aliases) {
  SpecList out;
  for (int i : aliases) {
    out.push_back(i < 0 ? TensorSpec{Shape{2}, DType::f64} : inputs[static_cast<size_t>(i)]);
  }
  return out;
}
// Checks and removes the last role, the sums.
SpecSpan without_sums(std::string_view op, SpecSpan inputs, const Attributes& attributes) {
  const size_t count = tensors_of(attributes);
  expect_inputs(op, inputs, 1 + count, SIZE_MAX);
  for (const TensorSpec& sums : inputs.last(count)) {
    expect_shape(op, "the sums", sums.shape, Shape{2});
    expect_dtype(op, "the sums", sums, DType::f64);
  }
  return inputs.first(inputs.size() - count);
}

std::vector<int> aliases_lars_sums(SpecSpan, const Attributes& attributes) {
  return aliases_of_roles(attributes, {}, true);
}
SpecList infer_lars_sums(SpecSpan inputs, const Attributes& attributes) {
  infer_update("lars_sums", inputs, attributes, 2);
  return written_by(inputs, aliases_lars_sums(inputs, attributes));
}
std::vector<int> aliases_lars(SpecSpan, const Attributes& attributes) {
  return attributes.number("momentum") != 0 ? aliases_of_roles(attributes, {0, 2}, false)
                                            : aliases_of_roles(attributes, {0}, false);
}
SpecList infer_lars(SpecSpan inputs, const Attributes& attributes) {
  infer_update("lars_update", without_sums("lars_update", inputs, attributes), attributes,
               attributes.number("momentum") != 0 ? 3 : 2);
  return written_by(inputs, aliases_lars(inputs, attributes));
}

std::vector<int> aliases_lamb_moments(SpecSpan, const Attributes& attributes) {
  return aliases_of_roles(attributes, {2, 3}, true);
}
SpecList infer_lamb_moments(SpecSpan inputs, const Attributes& attributes) {
  infer_update("lamb_moments", inputs, attributes, 4);
  return written_by(inputs, aliases_lamb_moments(inputs, attributes));
}
std::vector<int> aliases_lamb(SpecSpan, const Attributes& attributes) {
  return aliases_of_roles(attributes, {0}, false);
}
SpecList infer_lamb(SpecSpan inputs, const Attributes& attributes) {
  infer_update("lamb_update", without_sums("lamb_update", inputs, attributes), attributes, 3);
  return written_by(inputs, aliases_lamb(inputs, attributes));
}

// The specs of the roles of one Adafactor op, as views of its inputs.
struct AdafactorRoles {
  SpecSpan inputs;
  size_t count;

  const TensorSpec& of(size_t role, size_t tensor) const {
    return inputs[1 + role * count + tensor];
  }
};

AdafactorRoles check_adafactor(std::string_view op, SpecSpan inputs, const Attributes& attributes,
                               size_t roles) {
  const size_t count = tensors_of(attributes);
  expect_inputs(op, inputs, 1 + roles * count, 1 + roles * count);
  expect_parameters_and_gradients(op, inputs.first(1 + 2 * count), attributes, 2);
  const AdafactorRoles all{inputs, count};
  for (size_t t = 0; t < count; ++t) {
    const AdafactorMatrix matrix = adafactor_matrix(attributes, t, all.of(0, t).shape);
    const int64_t factors = matrix.factored ? matrix.rows + matrix.columns : 0;
    if (roles > 2) {
      expect_shape(op, "the variance of rows", all.of(2, t).shape,
                   matrix.factored ? Shape{matrix.rows} : all.of(0, t).shape);
      if (matrix.factored || !is_absent(all.of(3, t))) {
        expect_shape(op, "the variance of columns", all.of(3, t).shape,
                     matrix.factored ? Shape{matrix.columns} : Shape{0});
      }
      expect_shape(op, "the sums", all.of(4, t).shape, Shape{1 + factors});
    }
    if (roles > 5) expect_shape(op, "the squares", all.of(5, t).shape, Shape{1});
  }
  return all;
}

std::vector<int> aliases_adafactor_sums(SpecSpan, const Attributes& attributes) {
  return aliases_of_roles(attributes, {}, true);
}
SpecList infer_adafactor_sums(SpecSpan inputs, const Attributes& attributes) {
  const AdafactorRoles all = check_adafactor("adafactor_sums", inputs, attributes, 2);
  SpecList out;
  for (size_t t = 0; t < all.count; ++t) {
    const AdafactorMatrix matrix = adafactor_matrix(attributes, t, all.of(0, t).shape);
    out.push_back({Shape{1 + (matrix.factored ? matrix.rows + matrix.columns : 0)}, DType::f64});
  }
  return out;
}

std::vector<int> aliases_adafactor_moments(SpecSpan inputs, const Attributes& attributes) {
  std::vector<int> out = aliases_of_roles(attributes, {2, 3}, true);
  std::erase_if(out, [&](int i) { return i >= 0 && is_absent(inputs[static_cast<size_t>(i)]); });
  return out;
}
SpecList infer_adafactor_moments(SpecSpan inputs, const Attributes& attributes) {
  check_adafactor("adafactor_moments", inputs, attributes, 5);
  SpecList out = written_by(inputs, aliases_adafactor_moments(inputs, attributes));
  for (TensorSpec& spec : std::span(out).last(tensors_of(attributes))) spec.shape = Shape{1};
  return out;
}

std::vector<int> aliases_adafactor(SpecSpan, const Attributes& attributes) {
  return aliases_of_roles(attributes, {0}, false);
}
SpecList infer_adafactor(SpecSpan inputs, const Attributes& attributes) {
  check_adafactor("adafactor_update", inputs, attributes, 6);
  return written_by(inputs, aliases_adafactor(inputs, attributes));
}

}  // namespace

constinit const OpDef kLarsSumsOp{.name = "lars_sums",
                                  .doc = "sums of squares of parameters and gradients",
                                  .infer = infer_lars_sums,
                                  .aliases = aliases_lars_sums,
                                  .update = UpdateKind::sums};
constinit const OpDef kLarsUpdateOp{.name = "lars_update",
                                    .doc = "LARS over all parameters",
                                    .infer = infer_lars,
                                    .aliases = aliases_lars,
                                    .update = UpdateKind::optimizer,
                                    .has_effect = true};
constinit const OpDef kLambMomentsOp{.name = "lamb_moments",
                                     .doc = "moments of LAMB, sums of squares of its directions",
                                     .infer = infer_lamb_moments,
                                     .aliases = aliases_lamb_moments,
                                     .update = UpdateKind::sums,
                                     .has_effect = true};
constinit const OpDef kLambUpdateOp{.name = "lamb_update",
                                    .doc = "LAMB over all parameters",
                                    .infer = infer_lamb,
                                    .aliases = aliases_lamb,
                                    .update = UpdateKind::optimizer,
                                    .has_effect = true};
constinit const OpDef kAdafactorSumsOp{.name = "adafactor_sums",
                                       .doc = "sums of squares of rows, columns and parameters",
                                       .infer = infer_adafactor_sums,
                                       .aliases = aliases_adafactor_sums,
                                       .update = UpdateKind::sums};
constinit const OpDef kAdafactorMomentsOp{.name = "adafactor_moments",
                                          .doc = "variances of Adafactor, squares of its steps",
                                          .infer = infer_adafactor_moments,
                                          .aliases = aliases_adafactor_moments,
                                          .update = UpdateKind::sums,
                                          .has_effect = true};
constinit const OpDef kAdafactorUpdateOp{.name = "adafactor_update",
                                         .doc = "Adafactor over all parameters",
                                         .infer = infer_adafactor,
                                         .aliases = aliases_adafactor,
                                         .update = UpdateKind::optimizer,
                                         .has_effect = true};

}  // namespace dltrain
