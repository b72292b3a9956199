// low_precision_update(step_state, p₁ … pₙ, c₁ … cₙ): c ← p, rounded to the dtype of c (nearest,
// ties to even), in place. Runs after a step that is not finite too: parameters are then unchanged,
// but the memory of the copies may have been reused (graph/plan.h).
//   p floating, c bf16 or f16, alike in shape. Attribute: count (n, 1 if absent).
//
// Matrix products read the copies, which are written once a step instead of cast in every
// micro-step.
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

SpecList infer_low_precision(SpecSpan inputs, const Attributes& attributes) {
  const auto count = static_cast<size_t>(attributes.integer("count", 1));
  expect_inputs("low_precision_update", inputs, 1 + 2 * count, 1 + 2 * count);
  expect_step_state("low_precision_update", inputs[0]);
  const SpecSpan parameters = inputs.subspan(1, count), copies = inputs.subspan(1 + count);
  expect_one_float_dtype("low_precision_update", parameters);
  expect_one_float_dtype("low_precision_update", copies);
  for (size_t i = 0; i < count; ++i) {
    expect_shape("low_precision_update", "a copy", copies[i].shape, parameters[i].shape);
  }
  return {copies.begin(), copies.end()};
}

std::vector<int> aliases_low_precision(SpecSpan, const Attributes& attributes) {
  const auto count = static_cast<int>(attributes.integer("count", 1));
  std::vector<int> out;
  for (int i = 0; i < count; ++i) out.push_back(1 + count + i);
  return out;
}

}  // namespace

constinit const OpDef kLowPrecisionUpdateOp{.name = "low_precision_update",
                                            .doc = "rounds parameters to their bf16 or f16 copies",
                                            .infer = infer_low_precision,
                                            .aliases = aliases_low_precision,
                                            .update = UpdateKind::rounding,
                                            .independent_elements = true,
                                            .has_effect = true};

}  // namespace dltrain
