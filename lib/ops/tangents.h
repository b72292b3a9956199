// Forward-mode rules (Jacobian-vector products): the tangent of an op's first output,
// Σ ∂y/∂xᵢ · ẋᵢ, from tangents ẋᵢ of its inputs. They are emitted as ops and read the values of
// the forward. Used by graph/forward_gradient.h.
#pragma once

#include <optional>

#include "ops/op.h"

namespace dltrain {

struct TangentRequest {
  OpEmitter& emitter;
  const OpDef& op;
  std::span<const ValueId> inputs;
  std::span<const ValueId> outputs;
  std::span<const ValueId> tangents;  // per input, of its spec; kNoValue: zero. At least one is not
  const Attributes& attributes;
};

// Returns the tangent of outputs[0], of its spec; of losses their derivative, weighted by `seed`
// (f64, like the losses) and summed: [1] in the accumulation dtype. kNoValue: it is zero. nullopt:
// the op has no rule.
std::optional<ValueId> tangent(const TangentRequest& request, ValueId seed = kNoValue);

// Ops whose output is a loss, or several: tangent() needs a seed.
bool is_loss(const OpDef& op);

}  // namespace dltrain
