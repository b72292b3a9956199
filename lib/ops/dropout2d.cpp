// dropout2d(x, step_state): each channel of a sample is scaled by 1 / (1 − rate), or 0 (Tompson et
// al. 2015). Its gradient is itself.
//
//   x [N, ..., C]; channel c of sample n is kept when
//   random_uniform(seed, stream, step, (sample_offset + n) · C + c) >= rate
// Attributes as for dropout (dropout.cpp).
#include "ops/definitions.h"

namespace dltrain {
namespace {

std::vector<ValueId> gradient_dropout2d(const GradientRequest& r) {
  return {r.emitter.emit1("dropout2d", {r.output_gradients[0], r.inputs[1]}, r.attributes),
          kNoValue};
}

}  // namespace

constinit const OpDef kDropout2dOp{.name = "dropout2d",
                                   .doc = "y = x / (1 − rate) in channels that are kept, else 0",
                                   .signature = "x[N,*,C] step -> y[N,*,C]",
                                   .gradient = gradient_dropout2d,
                                   .in_place_allowed = true,
                                   .autocast = CastPolicy::follow};

}  // namespace dltrain
