// The forward-mode rules of recurrent networks (lib/ops/recurrent.cpp has the formulas). All
// factors but the product with W_hh are computed for every token at once. With z = W_hh·h + b_hh of
// the token before, u = Ẇ_hh·h + ḃ_hh and x the projected inputs:
//
//   lstm  ċ ← f∘ċ + Σ over i, f, g of K∘ż;  ḣ ← o∘(1 − tanh²c)∘ċ + K_o∘ż_o,  ż = ẋ + u + W_hh·ḣ
//         K_i = g·i(1 − i), K_f = c₋₁·f(1 − f), K_g = i·(1 − g²), K_o = tanh(c)·o(1 − o)
//   gru   ḣ ← z∘ḣ + Σ over r, z, n of K∘ż;  ż = ẋ + u + W_hh·ḣ, but ż_n = ẋ_n/r + (u + W_hh·ḣ)_n
//         A = (1 − z)(1 − n²), K_r = A·z_n·r(1 − r), K_z = (h₋₁ − n)·z(1 − z), K_n = A·r
//   rnn   ḣ ← f'∘(ẋ + u + W_hh·ḣ): the recurrence of its gradient with W_hhᵀ, the other way
#include "ops/recurrent.h"
#include "ops/tangent_emitter.h"

namespace dltrain {
namespace {

class RecurrentTangent {
 public:
  explicit RecurrentTangent(const TangentRequest& r)
      : r_(r), e_(r), s_(recurrent_sizes(r.emitter.spec(r.outputs[0]).shape, r.attributes)) {}

  ValueId run() const {
    // This is u, together with ẋ where their factors are equal.
    ValueId u = kNoValue;
    if (e_.has(1)) {
      u = r_.emitter.emit1("matmul", {before(r_.outputs[0], e_.input(3)), e_.tangent(1)},
                           {{"transpose_b", true}});
    }
    u = plus(u, e_.tangent(2));
    if (s_.kind != RecurrentKind::gru) u = plus(u, e_.tangent(0));
    if (u != kNoValue && r_.emitter.spec(u).shape.rank() == 1) {  // ḃ_hh alone
      u = e_.repeated(e_.cast(u, e_.y().dtype), {s_.samples, s_.tokens, s_.width()});
    }
    if (s_.kind == RecurrentKind::lstm) return lstm(u);
    return s_.kind == RecurrentKind::gru ? gru(u) : rnn(u);
  }

 private:
  ValueId plus(ValueId a, ValueId b) const {
    if (a == kNoValue || b == kNoValue) return a == kNoValue ? b : a;
    return e_.add(a, b);
  }
  ValueId backward(const char* op, ValueId known, ValueId dy) const {
    return r_.emitter.emit1(op, {known, dy});
  }
  ValueId gate(int64_t i) const { return e_.slice(r_.outputs[1], 2, i * s_.hidden, s_.hidden); }

  // Returns the values of the token before each one; `first`, [samples, hidden] or zeros, before
  // the first.
  ValueId before(ValueId values, ValueId first) const {
    const ValueId state = first != kNoValue ? e_.reshaped(first, {s_.samples, 1, s_.hidden})
                                            : e_.scaled(e_.slice(values, 1, 0, 1), 0);
    if (s_.tokens == 1) return state;
    const ValueId others = e_.slice(values, 1, s_.reverse ? 1 : 0, s_.tokens - 1);
    return s_.reverse ? e_.concat({others, state}, 1) : e_.concat({state, others}, 1);
  }

  ValueId rnn(ValueId u) const {
    const ValueId transposed = r_.emitter.emit1("transpose", {r_.inputs[1]},
                                                {{"permutation", std::vector<int64_t>{1, 0}}});
    Attributes attributes = r_.attributes;
    attributes.set("reverse", !s_.reverse);
    return r_.emitter.emit(
        "recurrent_backward",
        {u, r_.outputs[0], kNoValue, kNoValue, transposed, kNoValue, kNoValue, kNoValue},
        attributes)[0];
  }

  ValueId lstm(ValueId u) const {
    const ValueId i = gate(0), f = gate(1), g = gate(2), o = gate(3), c = r_.outputs[2];
    const ValueId tanh = r_.emitter.emit1("tanh", {c});
    const ValueId factors =
        e_.concat({backward("sigmoid_backward", i, g),
                   backward("sigmoid_backward", f, before(c, e_.input(4))),
                   backward("tanh_backward", g, i), backward("sigmoid_backward", o, tanh)},
                  2);
    return scan(factors, e_.mul(factors, u), f, backward("tanh_backward", tanh, o));
  }

  ValueId gru(ValueId u) const {
    const ValueId r = gate(0), z = gate(1), n = gate(2);
    const ValueId a = backward("tanh_backward", n, e_.scaled(z, -1, 1));
    const ValueId of_r = backward("sigmoid_backward", r, e_.mul(a, r_.outputs[2]));
    const ValueId difference = r_.emitter.emit1("sub", {before(r_.outputs[0], e_.input(3)), n});
    const ValueId of_z = backward("sigmoid_backward", z, difference);
    const ValueId factors = e_.concat({of_r, of_z, e_.mul(a, r)}, 2);
    ValueId added = u == kNoValue ? kNoValue : e_.mul(factors, u);
    if (e_.has(0)) added = plus(added, e_.mul(e_.concat({of_r, of_z, a}, 2), e_.tangent(0)));
    return scan(factors, added, z, kNoValue);
  }

  // The recurrence over the tokens: with m = added + factors ∘ (W_hh·ḣ), of each gate,
  // s ← keep∘s + Σ m over the gates (of an LSTM but the last), ḣ ← s, or out∘s + the last m.
  ValueId scan(ValueId factors, ValueId added, ValueId keep, ValueId out) const {
    const int64_t summed = out == kNoValue ? s_.gates : s_.gates - 1;
    std::vector<ValueId> hidden(static_cast<size_t>(s_.tokens));
    ValueId state = kNoValue, h = kNoValue;
    for (int64_t step = 0; step < s_.tokens; ++step) {
      const int64_t t = s_.reverse ? s_.tokens - 1 - step : step;
      const auto at = [&](ValueId x) { return e_.slice(x, 1, t, 1); };
      ValueId m = at(added);
      if (h != kNoValue) {
        const ValueId product =
            r_.emitter.emit1("matmul", {h, r_.inputs[1]}, {{"transpose_b", true}});
        m = e_.add(m, e_.mul(at(factors), product));
      }
      if (state != kNoValue) state = e_.mul(at(keep), state);
      for (int64_t i = 0; i < summed; ++i) {
        state = plus(e_.slice(m, 2, i * s_.hidden, s_.hidden), state);
      }
      h = state;
      if (out != kNoValue) {
        h = e_.add(e_.mul(at(out), state), e_.slice(m, 2, summed * s_.hidden, s_.hidden));
      }
      hidden[static_cast<size_t>(t)] = h;
    }
    return joined(std::move(hidden));
  }
  // concat takes a limited number of inputs.
  ValueId joined(std::vector<ValueId> parts) const {
    constexpr size_t kMost = 128;
    while (parts.size() > 1) {
      std::vector<ValueId> wider;
      for (size_t i = 0; i < parts.size(); i += kMost) {
        const auto begin = parts.begin() + static_cast<std::ptrdiff_t>(i);
        const size_t count = std::min(kMost, parts.size() - i);
        wider.push_back(e_.concat({begin, begin + static_cast<std::ptrdiff_t>(count)}, 1));
      }
      parts = std::move(wider);
    }
    return parts[0];
  }

  const TangentRequest& r_;
  TangentEmitter e_;
  RecurrentSizes s_;
};

}  // namespace

std::optional<ValueId> recurrent_tangent(const TangentRequest& r) {
  return RecurrentTangent(r).run();
}

}  // namespace dltrain
