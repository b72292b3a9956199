// Optimizers whose step depends on norms or sums of whole tensors. Inputs, names and the attributes
// that all optimizers share are those of update.cpp.
//
// lars_update(…, [m]): You, Gitman & Ginsburg 2017, with the learning rate outside of the velocity
//   (as NVIDIA's and timm's): trust = trust_coefficient·‖p‖ / (‖g‖ + λ‖p‖ + epsilon) for each
//   tensor, 1 where λ or a norm is 0; m ← momentum·m + trust·(g + λp); p ← p − lr·m.
//   Attributes: momentum, trust_coefficient, epsilon; always_adapt (boolean, false): trust where λ
//   is 0 too.
// lamb_update(…, m, v): You et al. 2020, algorithm 2: m and v as Adam's,
//   u = (m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + epsilon) + λp; trust = ‖p‖/‖u‖ for each tensor, 1 where λ or
//   a norm is 0; p ← p − lr·trust·u. Attributes: beta1, beta2, epsilon, always_adapt.
// adafactor_update(…, r, c): Shazeer & Stern 2018, algorithms 4 and 5 without momentum, as
//   torch.optim.Adafactor. A tensor of two axes and more is a matrix of its first axis by all
//   others (PyTorch splits before the last axis: the same for matrices). ρ = t^beta2_decay;
//   r ← r + ρ·(mean of g² over a row − r), c ← c + ρ·(mean of g² over a column − c),
//   v = r·c / max(mean r, epsilon1); u = g / √max(v, epsilon1²);
//   p ← (1 − lr·λ)p − max(epsilon2, RMS p)·min(lr, 1/√t) / max(1, RMS u / d) · u, RMS p before the
//   decay. Other tensors keep v itself in place of r, v ← v + ρ·(g² − v), and no c.
//   Attributes: beta2_decay, epsilon1, epsilon2, d.
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/update.h"

namespace dltrain {
namespace {

SpecList infer_lars(SpecSpan inputs, const Attributes& attributes) {
  return infer_update("lars_update", inputs, attributes,
                      attributes.number("momentum") != 0 ? 3 : 2);
}
SpecList infer_lamb(SpecSpan inputs, const Attributes& attributes) {
  return infer_update("lamb_update", inputs, attributes, 4);
}

SpecList infer_adafactor(SpecSpan inputs, const Attributes& attributes) {
  expect_parameters_and_gradients("adafactor_update", inputs, attributes, 4);
  const auto count = static_cast<size_t>(attributes.integer("count", 1));
  for (size_t i = 0; i < count; ++i) {
    const Shape& p = inputs[1 + i].shape;
    const bool factored = p.rank() > 1;
    expect_shape("adafactor_update", "the variance of rows", inputs[1 + 2 * count + i].shape,
                 factored ? Shape{p[0]} : p);
    const TensorSpec& columns = inputs[1 + 3 * count + i];
    if (factored || !is_absent(columns)) {
      expect_shape("adafactor_update", "the variance of columns", columns.shape,
                   factored ? Shape{p.elements(1, p.rank())} : Shape{0});
    }
  }
  return written_by_update(inputs, attributes);
}

}  // namespace

constinit const OpDef kLarsUpdateOp{.name = "lars_update",
                                    .doc = "LARS over all parameters",
                                    .infer = infer_lars,
                                    .aliases = aliases_update,
                                    .update = UpdateKind::optimizer,
                                    .has_effect = true};
constinit const OpDef kLambUpdateOp{.name = "lamb_update",
                                    .doc = "LAMB over all parameters",
                                    .infer = infer_lamb,
                                    .aliases = aliases_update,
                                    .update = UpdateKind::optimizer,
                                    .has_effect = true};
constinit const OpDef kAdafactorUpdateOp{.name = "adafactor_update",
                                         .doc = "Adafactor over all parameters",
                                         .infer = infer_adafactor,
                                         .aliases = aliases_update,
                                         .update = UpdateKind::optimizer,
                                         .has_effect = true};

}  // namespace dltrain
