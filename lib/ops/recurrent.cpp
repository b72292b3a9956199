// recurrent: one layer and one direction of a recurrent network, from projected inputs.
//
//   x      [samples, tokens, G·H]  W_ih·x_t + b_ih of every token (a matmul before it)
//   w      [G·H, H]                W_hh
//   b      [G·H], optional         b_hh
//   h0     [samples, H], optional  the state before the first token; absent: zero
//   c0     [samples, H], optional  likewise the cells of an LSTM
//   y      [samples, tokens, H]    the hidden state after every token
//   gates  [samples, tokens, G·H]  LSTM and GRU: the gates after their activation
//   cells  [samples, tokens, H]    LSTM: c_t; GRU: W_hn·h + b_hn
//
// Attributes: kind: lstm, gru, rnn_tanh or rnn_relu; reverse (bool): from the last token to the
// first. With z = x_t + W_hh·h + b_hh split into G blocks (the gates' order is PyTorch's):
//
//   lstm (G = 4)  i = σ(z_i), f = σ(z_f), g = tanh(z_g), o = σ(z_o); c ← f∘c + i∘g; h ← o∘tanh(c)
//   gru (G = 3)   r = σ(z_r), z = σ(z_z), n = tanh(x_n + r∘(W_hn·h + b_hn)); h ← (1 − z)∘n + z∘h
//   rnn (G = 1)   h ← tanh(z), or max(z, 0)
//
// (Hochreiter and Schmidhuber 1997; Gers et al. 2000; Cho et al. 2014 in the form of cuDNN.)
//
// recurrent_backward(dy, y, gates, cells, w, b, h0, c0) → dx, dw, db: back-propagation through the
// tokens. h0 and c0 are constants: they get no gradient (truncated back-propagation). gates and
// cells are absent for rnn; db is left out where b is absent. dw and db have the accumulation
// dtype.
#include "ops/recurrent.h"

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/token_axis.h"

namespace dltrain {
namespace {

SpecList infer_recurrent(SpecSpan inputs, const Attributes& attributes) {
  constexpr std::string_view kOp = "recurrent";
  const Shape &x = inputs[0].shape, &w = inputs[1].shape;
  const RecurrentSizes s = recurrent_sizes({x[0], x[1], w[1]}, attributes);
  if (s.tokens < 1 || s.hidden < 1) {
    fail(ExitCode::usage, "{}: needs a token and a hidden unit, got {} and {}", kOp, to_string(x),
         to_string(w));
  }
  expect_shape(kOp, "w", w, Shape{s.width(), s.hidden});
  check_internal(s.kind == RecurrentKind::lstm || inputs.size() < 5 || is_absent(inputs[4]),
                 "only an LSTM has cells");
  const DType dtype = inputs[0].dtype;
  SpecList out{{Shape{s.samples, s.tokens, s.hidden}, dtype}};
  if (keeps_gates(s.kind)) {
    out.push_back(inputs[0]);
    out.push_back(out[0]);
  }
  return out;
}

ValueId given(std::span<const ValueId> inputs, size_t i) {
  return i < inputs.size() ? inputs[i] : kNoValue;
}

std::vector<ValueId> gradient_recurrent(const GradientRequest& r) {
  const bool kept = keeps_gates(recurrent_kind(r.attributes));
  std::vector<ValueId> out =
      r.emitter.emit("recurrent_backward",
                     {r.output_gradients[0], r.outputs[0], kept ? r.outputs[1] : kNoValue,
                      kept ? r.outputs[2] : kNoValue, r.inputs[1], given(r.inputs, 2),
                      given(r.inputs, 3), given(r.inputs, 4)},
                     r.attributes);
  out.resize(r.inputs.size(), kNoValue);
  return out;
}

// Cost of the product with w for every token; the backward has one for the state and one for w.
Cost pass_cost_recurrent(const Shape& x, const Shape& w, SpecSpan inputs, SpecSpan outputs) {
  return {2.0 * static_cast<double>(x[0] * x[1]) * static_cast<double>(w.elements()),
          bytes_moved(inputs, outputs)};
}
Cost cost_recurrent(SpecSpan inputs, SpecSpan outputs, const Attributes&) {
  return pass_cost_recurrent(inputs[0].shape, inputs[1].shape, inputs, outputs);
}
Cost cost_recurrent_backward(SpecSpan inputs, SpecSpan outputs, const Attributes&) {
  Cost c = pass_cost_recurrent(outputs[0].shape, inputs[4].shape, inputs, outputs);
  c.flops *= 2;
  return c;
}

int tokens_of_recurrent(const TokenAxes& node) {
  return node.attributes.boolean("reverse") ? kMixesTokens : tokens_at_one(node);
}

}  // namespace

RecurrentKind recurrent_kind(const Attributes& attributes) {
  const std::string kind = attributes.text("kind");
  if (kind == "lstm") return RecurrentKind::lstm;
  if (kind == "gru") return RecurrentKind::gru;
  if (kind == "rnn_tanh") return RecurrentKind::rnn_tanh;
  if (kind == "rnn_relu") return RecurrentKind::rnn_relu;
  fail(ExitCode::usage, "recurrent: unknown kind '{}'", kind);
}

int64_t recurrent_gates(RecurrentKind kind) {
  if (kind == RecurrentKind::lstm) return 4;
  return kind == RecurrentKind::gru ? 3 : 1;
}

RecurrentSizes recurrent_sizes(const Shape& y, const Attributes& attributes) {
  const RecurrentKind kind = recurrent_kind(attributes);
  return {.kind = kind,
          .samples = y[0],
          .tokens = y[1],
          .hidden = y[2],
          .gates = recurrent_gates(kind),
          .reverse = attributes.boolean("reverse")};
}

constinit const OpDef kRecurrentOp{.name = "recurrent",
                                   .doc = "LSTM, GRU or RNN over the tokens of projected inputs",
                                   .signature = "x[N,T,G] w[G,H] b[G]? h0[N,H]? c0[N,H]?",
                                   .infer = infer_recurrent,
                                   .gradient = gradient_recurrent,
                                   .cost = cost_recurrent,
                                   .autocast = CastPolicy::low,
                                   .token_axis = tokens_of_recurrent};
constinit const OpDef kRecurrentBackwardOp{
    .name = "recurrent_backward",
    .doc = "gradients of recurrent through its tokens",
    .signature =
        "dy[N,T,H] y[N,T,H] gates[N,T,G]? cells[N,T,H]? w[G,H] b[G]? h0[N,H]? c0[N,H]? -> "
        "dx[N,T,G] dw[G,H]:sum db[G]:sum?b",
    .cost = cost_recurrent_backward};

}  // namespace dltrain
