// dropout2d(x, step_state): each channel of a sample is scaled by 1 / (1 − rate), or 0 (Tompson et
// al. 2015). Its gradient is itself.
//
//   x [N, ..., C]; channel c of sample n is kept when
//   random_uniform(seed, stream, step, (sample_offset + n) · C + c) >= rate
// Attributes as for dropout (dropout.cpp).
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

SpecList infer_dropout2d(SpecSpan inputs, const Attributes&) {
  expect_inputs("dropout2d", inputs, 2, 2);
  expect_rank("dropout2d", "the input", inputs[0].shape, 2, Shape::kMaxRank);
  expect_one_float_dtype("dropout2d", inputs.first(1));
  expect_step_state("dropout2d", inputs[1]);
  return {inputs[0]};
}

std::vector<ValueId> gradient_dropout2d(const GradientRequest& r) {
  return {r.emitter.emit1("dropout2d", {r.output_gradients[0], r.inputs[1]}, r.attributes),
          kNoValue};
}

}  // namespace

constinit const OpDef kDropout2dOp{.name = "dropout2d",
                                   .doc = "y = x / (1 − rate) in channels that are kept, else 0",
                                   .infer = infer_dropout2d,
                                   .gradient = gradient_dropout2d,
                                   .in_place_allowed = true,
                                   .autocast = CastPolicy::follow};

}  // namespace dltrain
