// recurrent_network: a projection and the recurrent network after it as one op
// (lib/ops/recurrent.cpp has the formulas). Layers emit it; lower_recurrent (lib/passes) replaces
// it by a matmul and a recurrent unless the engine has a kernel that is better than these.
//
//   x      [samples, tokens, I]
//   w_ih   [G·H, I], w_hh [G·H, H]
//   b_ih   [G·H], b_hh [G·H]   both or neither
//   h0     [samples, H], optional; c0 likewise, of an LSTM: the state before the first token
//   y      [samples, tokens, H]
//   cell   [samples, 1, H], LSTM only: the cells after the last token that is read
//   kept   u8 [kept_bytes], absent where that is 0: data that the kernel keeps for its backward
//
// Attributes: kind, reverse (as of recurrent); kept_bytes (integer): the result of
// KernelRow::kept_bytes, 0 without a backward.
//
// recurrent_network_backward(dy, x, y, w_ih, w_hh, b_ih, b_hh, h0, c0, kept) → dx, dw_ih, dw_hh
// and, with biases, db_ih, db_hh. h0 and c0 are constants, and `cell`, which is carried to the next
// batch, has no gradient. Gradients of parameters have the accumulation dtype (cuDNN adds those of
// a micro-batch up in 16 bits where the tensors have them). The kernel may overwrite `kept`
// (OpDef::keeps_bytes).
#include "base/error.h"
#include "ops/definitions.h"
#include "ops/recurrent.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

SpecList infer_recurrent_network(SpecSpan inputs, const Attributes& attributes) {
  constexpr std::string_view kOp = "recurrent_network";
  const Shape &x = inputs[0].shape, &w = inputs[2].shape;
  const RecurrentSizes s = recurrent_sizes({x[0], x[1], w[1]}, attributes);
  if (s.tokens < 1 || s.hidden < 1 || x[2] < 1) {
    fail(ExitCode::usage, "{}: needs a token, an input and a hidden unit, got {} and {}", kOp,
         to_string(x), to_string(w));
  }
  expect_shape(kOp, "w_hh", w, Shape{s.width(), s.hidden});
  check_internal(is_absent(inputs[3]) == is_absent(inputs[4]), "{}: only one of two biases", kOp);
  check_internal(s.kind == RecurrentKind::lstm || is_absent(inputs[6]), "only an LSTM has cells");
  const DType dtype = inputs[0].dtype;
  SpecList out{{Shape{s.samples, s.tokens, s.hidden}, dtype}};
  if (s.kind == RecurrentKind::lstm) out.push_back({Shape{s.samples, 1, s.hidden}, dtype});
  const int64_t kept = attributes.integer("kept_bytes");
  check_internal(kept >= 0, "{}: kept_bytes is {}", kOp, kept);
  if (kept > 0) out.push_back({Shape{kept}, DType::u8});
  return out;
}

std::vector<ValueId> gradient_recurrent_network(const GradientRequest& r) {
  const auto in = r.inputs;
  const bool keeps = r.attributes.integer("kept_bytes") > 0;
  std::vector<ValueId> out =
      r.emitter.emit("recurrent_network_backward",
                     {r.output_gradients[0], in[0], r.outputs[0], in[1], in[2], in[3], in[4], in[5],
                      in[6], keeps ? r.outputs.back() : kNoValue},
                     r.attributes);
  out.resize(in.size(), kNoValue);
  return out;
}

// Cost of the products with both weights for every token, times `passes`.
Cost pass_cost_recurrent_network(const Shape& x, SpecSpan inputs, size_t weights, SpecSpan outputs,
                                 double passes) {
  const auto elements =
      static_cast<double>(inputs[weights].shape.elements() + inputs[weights + 1].shape.elements());
  return {passes * 2.0 * static_cast<double>(x[0] * x[1]) * elements, bytes_moved(inputs, outputs)};
}
Cost cost_recurrent_network(SpecSpan inputs, SpecSpan outputs, const Attributes&) {
  return pass_cost_recurrent_network(inputs[0].shape, inputs, 1, outputs, 1);
}
Cost cost_recurrent_network_backward(SpecSpan inputs, SpecSpan outputs, const Attributes&) {
  return pass_cost_recurrent_network(inputs[1].shape, inputs, 3, outputs, 2);
}

}  // namespace

constinit const OpDef kRecurrentNetworkOp{
    .name = "recurrent_network",
    .doc = "LSTM, GRU or RNN over the tokens, with the projection of its inputs",
    .signature = "x[N,T,I] w_ih[G,I] w_hh[G,H] b_ih[G]? b_hh[G]? h0[N,H]? c0[N,H]?",
    .infer = infer_recurrent_network,
    .gradient = gradient_recurrent_network,
    .cost = cost_recurrent_network,
    .keeps_bytes = true,
    .autocast = CastPolicy::low};  // the cells and sums of a step are f32
constinit const OpDef kRecurrentNetworkBackwardOp{
    .name = "recurrent_network_backward",
    .doc = "gradients of recurrent_network through its tokens",
    .signature =
        "dy[N,T,H] x[N,T,I] y[N,T,H] w_ih[G,I] w_hh[G,H] b_ih[G]? b_hh[G]? h0[N,H]? c0[N,H]? "
        "kept[K]:u8? -> dx[N,T,I] dw_ih[G,I]:sum dw_hh[G,H]:sum db_ih[G]:sum?b_ih "
        "db_hh[G]:sum?b_hh; K=kept_bytes",
    .cost = cost_recurrent_network_backward,
    .keeps_bytes = true};

}  // namespace dltrain
