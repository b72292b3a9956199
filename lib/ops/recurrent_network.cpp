// recurrent_network: a projection and the recurrent network after it as one op
// (lib/ops/recurrent.cpp has the formulas), for libraries that include the projection. Layers never
// emit it: fuse_recurrent (lib/passes) substitutes it for a matmul and a recurrent where the engine
// has a better kernel.
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
#include <algorithm>

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/recurrent.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

// Used by forward and backward: checks w_ih, w_hh, the biases and the state from input `at` on.
RecurrentSizes check_operands(std::string_view op, SpecSpan inputs, size_t at, const Shape& x,
                              const Attributes& attributes) {
  expect_rank(op, "x", x, 3, 3);
  const Shape &w_ih = inputs[at].shape, &w_hh = inputs[at + 1].shape;
  expect_rank(op, "w_ih", w_ih, 2, 2);
  expect_rank(op, "w_hh", w_hh, 2, 2);
  const RecurrentSizes s = recurrent_sizes({x[0], x[1], w_hh[1]}, attributes);
  if (s.tokens < 1 || s.hidden < 1 || x[2] < 1) {
    fail(ExitCode::usage, "{}: needs a token, an input and a hidden unit, got {} and {}", op,
         to_string(x), to_string(w_hh));
  }
  expect_shape(op, "w_ih", w_ih, Shape{s.width(), x[2]});
  expect_shape(op, "w_hh", w_hh, Shape{s.width(), s.hidden});
  const bool biased = !is_absent(inputs[at + 2]);
  check_internal(biased == !is_absent(inputs[at + 3]), "{}: only one of two biases", op);
  if (biased) {
    expect_shape(op, "b_ih", inputs[at + 2].shape, Shape{s.width()});
    expect_shape(op, "b_hh", inputs[at + 3].shape, Shape{s.width()});
  }
  const Shape state{s.samples, s.hidden};
  if (!is_absent(inputs[at + 4])) expect_shape(op, "h0", inputs[at + 4].shape, state);
  if (!is_absent(inputs[at + 5])) {
    check_internal(s.kind == RecurrentKind::lstm, "only an LSTM has cells");
    expect_shape(op, "c0", inputs[at + 5].shape, state);
  }
  return s;
}

SpecList infer_recurrent_network(SpecSpan inputs, const Attributes& attributes) {
  constexpr std::string_view kOp = "recurrent_network";
  expect_inputs(kOp, inputs, 7, 7);
  expect_one_float_dtype(kOp, inputs);
  const RecurrentSizes s = check_operands(kOp, inputs, 1, inputs[0].shape, attributes);
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
  const std::vector<ValueId> made =
      r.emitter.emit("recurrent_network_backward",
                     {r.output_gradients[0], in[0], r.outputs[0], in[1], in[2], in[3], in[4], in[5],
                      in[6], keeps ? r.outputs.back() : kNoValue},
                     r.attributes);
  std::vector<ValueId> out(in.size(), kNoValue);
  std::copy(made.begin(), made.end(), out.begin());
  return out;
}

SpecList infer_recurrent_network_backward(SpecSpan inputs, const Attributes& attributes) {
  constexpr std::string_view kOp = "recurrent_network_backward";
  expect_inputs(kOp, inputs, 10, 10);
  const RecurrentSizes s = check_operands(kOp, inputs, 3, inputs[1].shape, attributes);
  const Shape y{s.samples, s.tokens, s.hidden};
  expect_shape(kOp, "dy", inputs[0].shape, y);
  expect_shape(kOp, "y", inputs[2].shape, y);
  expect_shape(kOp, "kept", inputs[9].shape, Shape{attributes.integer("kept_bytes")});
  const DType sums = accumulation_dtype(inputs[1].dtype);
  SpecList out{inputs[1], {inputs[3].shape, sums}, {inputs[4].shape, sums}};
  if (!is_absent(inputs[5])) out.insert(out.end(), 2, {inputs[5].shape, sums});
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
    .infer = infer_recurrent_network,
    .gradient = gradient_recurrent_network,
    .cost = cost_recurrent_network,
    .keeps_bytes = true};
constinit const OpDef kRecurrentNetworkBackwardOp{
    .name = "recurrent_network_backward",
    .doc = "gradients of recurrent_network through its tokens",
    .infer = infer_recurrent_network_backward,
    .cost = cost_recurrent_network_backward,
    .keeps_bytes = true};

}  // namespace dltrain
