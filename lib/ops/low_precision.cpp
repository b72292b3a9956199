// low_precision_update(step_state, p₁ … pₙ, c₁ … cₙ): c ← p, rounded to the dtype of c (nearest,
// ties to even), in place. Runs after a step that is not finite too: parameters are then unchanged,
// but the memory of the copies may have been reused (graph/program.h).
//   p floating, c bf16 or f16, alike in shape. Attribute: count (n, 1 if absent).
//
// Matrix products read the copies, which are written once a step instead of cast in every
// micro-step.
#include "ops/definitions.h"

namespace dltrain {
constinit const OpDef kLowPrecisionUpdateOp{.name = "low_precision_update",
                                            .doc = "rounds parameters to their bf16 or f16 copies",
                                            .signature = "step | p[*] copy[*]:low -> copy!",
                                            .update = UpdateKind::rounding,
                                            .independent_elements = true,
                                            .has_effect = true};

}  // namespace dltrain
