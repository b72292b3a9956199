// dropout(x, step_state): y = x / (1 − rate) where kept, else 0. Its gradient is itself.
//
// Element e of the micro-batch is kept when
//   random_uniform(seed, stream, step, sample_offset · elements_per_sample + e) >= rate
// (base/philox.h; seed, step and sample_offset from StepState.in; for a shard or some tokens e is
// the element of the whole tensor, ops/shard_position.h), so a mask never depends on threads, ranks
// or accumulation. The first axis is samples. Attributes: rate (number in [0, 1)), stream (integer:
// random_stream of the layer's path, as int64).
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

std::vector<ValueId> gradient_dropout(const GradientRequest& r) {
  return {r.emitter.emit1("dropout", {r.output_gradients[0], r.inputs[1]}, r.attributes), kNoValue};
}

// The elements of a shard must be one range of each row.
std::optional<std::vector<Placement>> place_dropout(SpecSpan, const Attributes&,
                                                    std::span<const Placement> p) {
  if (p[0].kind != Placement::sharded || p[0].parts.size() > 1 || has_copies(p[0].parts)) {
    return {};
  }
  return {{p[0]}};
}

}  // namespace

constinit const OpDef kDropoutOp{.name = "dropout",
                                 .doc = "y = x / (1 − rate) where kept, else 0",
                                 .signature = "x[N,*] step -> y[N,*]",
                                 .gradient = gradient_dropout,
                                 .place = place_dropout,
                                 .localize = localize_position,
                                 .in_place_allowed = true,
                                 .autocast = CastPolicy::follow,
                                 .token_axis = tokens_of_first,
                                 .localize_tokens = localize_token_elements};

}  // namespace dltrain
