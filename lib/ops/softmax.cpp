// softmax(x):      y = exp(x) / Σ exp(x) over the last axis.
// log_softmax(x):  y = x − ln Σ exp(x) over the last axis.
//
//   x, y [..., C]; the greatest x of a row is subtracted first, so nothing overflows.
//
// softmax_backward(y, dy) → dx = y·(dy − Σ dy·y)
// log_softmax_backward(y, dy) → dx = dy − exp(y)·Σ dy
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

std::vector<ValueId> gradient_softmax(const GradientRequest& r) {
  return {r.emitter.emit1("softmax_backward", {r.outputs[0], r.output_gradients[0]})};
}
std::vector<ValueId> gradient_log_softmax(const GradientRequest& r) {
  return {r.emitter.emit1("log_softmax_backward", {r.outputs[0], r.output_gradients[0]})};
}

}  // namespace

constinit const OpDef kSoftmaxOp{.name = "softmax",
                                 .doc = "y = exp(x) / Σ exp(x) over the last axis",
                                 .signature = "x[*,C] -> y[*,C]",
                                 .gradient = gradient_softmax,
                                 .cost = cost_an_element<5>,
                                 .in_place_allowed = true,
                                 .token_axis = tokens_before_last};
constinit const OpDef kSoftmaxBackwardOp{.name = "softmax_backward",
                                         .doc = "dx = y·(dy − Σ dy·y)",
                                         .signature = "y[*,C] dy[*,C] -> dx[*,C]",
                                         .cost = cost_an_element<5>,
                                         .in_place_allowed = true};
constinit const OpDef kLogSoftmaxOp{.name = "log_softmax",
                                    .doc = "y = x − ln Σ exp(x) over the last axis",
                                    .signature = "x[*,C] -> y[*,C]",
                                    .gradient = gradient_log_softmax,
                                    .cost = cost_an_element<5>,
                                    .in_place_allowed = true,
                                    .token_axis = tokens_before_last};
constinit const OpDef kLogSoftmaxBackwardOp{.name = "log_softmax_backward",
                                            .doc = "dx = dy − exp(y)·Σ dy",
                                            .signature = "y[*,C] dy[*,C] -> dx[*,C]",
                                            .cost = cost_an_element<5>,
                                            .in_place_allowed = true};

}  // namespace dltrain
