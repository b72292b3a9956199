// The units of recurrent networks, one vector at a time.
#include <algorithm>

#include "cpu/recurrent.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/recurrent_units.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/element-inl.h"
#include "cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {

// Part of a row: `count` units from `at` on.
struct Units {
  int64_t at;
  size_t count;

  template <typename T>
  HWY_INLINE FloatVec get(const T* row) const {
    return load_n(row + at, count);
  }
  template <typename T>
  HWY_INLINE void put(FloatVec v, T* row) const {
    store_n(v, row + at, count);
  }
};

template <typename F>
HWY_INLINE void along_units(int64_t begin, int64_t end, const F& f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  for (int64_t i = begin; i < end; i += lanes) {
    f(Units{i, static_cast<size_t>(std::min(lanes, end - i))});
  }
}

HWY_INLINE FloatVec one_minus(FloatVec v) {
  return hn::Sub(constant(1), v);
}
// The derivatives of σ and tanh from their values.
HWY_INLINE FloatVec sigmoid_slope(FloatVec y) {
  return hn::Mul(y, one_minus(y));
}
HWY_INLINE FloatVec tanh_slope(FloatVec y) {
  return hn::NegMulAdd(y, y, constant(1));
}

// The rows of one sample and token.
template <typename T>
struct ForwardRows {
  ForwardRows(const RecurrentStep<T>& s, int64_t sample, int64_t token)
      : hidden(s.sizes.hidden),
        bias(s.bias),
        x(s.x + (sample * s.sizes.tokens + token) * s.sizes.width()),
        product(s.product + sample * s.sizes.width()),
        cell(s.cell + sample * hidden),
        state(s.state + sample * hidden),
        y(s.y + (sample * s.sizes.tokens + token) * hidden),
        gates(s.gates + (s.gates == nullptr ? 0 : x - s.x)),
        cells(s.cells + (s.cells == nullptr ? 0 : y - s.y)) {}

  // Returns W_hh·h + b_hh of a gate.
  HWY_INLINE FloatVec from_state(Units u, int64_t gate) const {
    const FloatVec p = u.get(product + gate * hidden);
    return bias == nullptr ? p : hn::Add(p, u.get(bias + gate * hidden));
  }
  HWY_INLINE FloatVec sum(Units u, int64_t gate) const {
    return hn::Add(u.get(x + gate * hidden), from_state(u, gate));
  }
  HWY_INLINE void keep(Units u, int64_t gate, FloatVec v) const { u.put(v, gates + gate * hidden); }
  HWY_INLINE void finish(Units u, FloatVec h) const {
    u.put(h, y);
    u.put(h, state);
  }

  int64_t hidden;
  const T *bias, *x;
  const float* product;
  float* cell;
  T *state, *y, *gates, *cells;
};

template <typename T>
void lstm(const RecurrentStep<T>& s, int64_t sample, int64_t token, int64_t begin, int64_t end) {
  const ForwardRows<T> rows(s, sample, token);
  along_units(begin, end, [&](Units u) HWY_ATTR {
    const FloatVec in = sigmoid_vec(rows.sum(u, 0)), forget = sigmoid_vec(rows.sum(u, 1));
    const FloatVec candidate = tanh_vec(rows.sum(u, 2)), out = sigmoid_vec(rows.sum(u, 3));
    const FloatVec c = hn::MulAdd(forget, u.get(rows.cell), hn::Mul(in, candidate));
    rows.keep(u, 0, in);
    rows.keep(u, 1, forget);
    rows.keep(u, 2, candidate);
    rows.keep(u, 3, out);
    u.put(c, rows.cell);
    u.put(c, rows.cells);
    rows.finish(u, hn::Mul(out, tanh_vec(c)));
  });
}

template <typename T>
void gru(const RecurrentStep<T>& s, int64_t sample, int64_t token, int64_t begin, int64_t end) {
  const ForwardRows<T> rows(s, sample, token);
  along_units(begin, end, [&](Units u) HWY_ATTR {
    const FloatVec reset = sigmoid_vec(rows.sum(u, 0)), update = sigmoid_vec(rows.sum(u, 1));
    const FloatVec product = rows.from_state(u, 2);
    const FloatVec candidate =
        tanh_vec(hn::MulAdd(reset, product, u.get(rows.x + 2 * rows.hidden)));
    rows.keep(u, 0, reset);
    rows.keep(u, 1, update);
    rows.keep(u, 2, candidate);
    u.put(product, rows.cells);
    // (1 − z)·n + z·h
    const FloatVec h = hn::MulAdd(update, hn::Sub(u.get(rows.cell), candidate), candidate);
    u.put(h, rows.cell);
    rows.finish(u, h);
  });
}

template <typename T, bool kTanh>
void rnn(const RecurrentStep<T>& s, int64_t sample, int64_t token, int64_t begin, int64_t end) {
  const ForwardRows<T> rows(s, sample, token);
  along_units(begin, end, [&](Units u) HWY_ATTR {
    const FloatVec z = rows.sum(u, 0);
    rows.finish(u, kTanh ? tanh_vec(z) : elementwise_vec<ElementwiseOp::relu>(z, z, z, z));
  });
}

template <typename T>
struct BackwardRows {
  BackwardRows(const RecurrentBackwardStep<T>& s, int64_t sample, int64_t token)
      : hidden(s.sizes.hidden),
        token_row(sample * s.sizes.tokens + token),
        dy(s.dy + token_row * hidden),
        y(s.y + token_row * hidden),
        gates(s.gates == nullptr ? nullptr : s.gates + token_row * s.sizes.width()),
        cells(s.cells == nullptr ? nullptr : s.cells + token_row * hidden),
        dstate(s.dstate + sample * hidden),
        dcell(s.dcell + sample * hidden),
        dx(s.dx + token_row * s.sizes.width()),
        dz(s.dz + sample * s.sizes.width()),
        dz_all(s.dz_all == s.dx ? nullptr : s.dz_all + token_row * s.sizes.width()) {
    const int64_t before = s.sizes.before(token);
    const auto earlier = [&](const T* states, const T* initial) -> const T* {
      if (before >= 0) return states + (sample * s.sizes.tokens + before) * hidden;
      return initial == nullptr ? nullptr : initial + sample * hidden;
    };
    state_before = earlier(s.y, s.initial_state);
    cell_before = s.cells == nullptr ? nullptr : earlier(s.cells, s.initial_cell);
  }

  HWY_INLINE FloatVec gate(Units u, int64_t k) const { return u.get(gates + k * hidden); }
  HWY_INLINE FloatVec dh(Units u) const { return hn::Add(u.get(dy), u.get(dstate)); }
  static HWY_INLINE FloatVec or_zero(Units u, const T* row) {
    return row == nullptr ? hn::Zero(Floats()) : u.get(row);
  }
  // Stores a gate's gradients towards input and state.
  HWY_INLINE void set(Units u, int64_t k, FloatVec v) const { set(u, k, v, v); }
  HWY_INLINE void set(Units u, int64_t k, FloatVec to_input, FloatVec to_state) const {
    u.put(to_input, dx + k * hidden);
    u.put(to_state, dz + k * hidden);
    if (dz_all != nullptr) u.put(to_state, dz_all + k * hidden);
  }

  int64_t hidden, token_row;
  const T *dy, *y, *gates, *cells;
  const T *state_before = nullptr, *cell_before = nullptr;
  float *dstate, *dcell;
  T *dx, *dz, *dz_all;
};

template <typename T>
void lstm_backward(const RecurrentBackwardStep<T>& s, int64_t sample, int64_t token, int64_t begin,
                   int64_t end) {
  const BackwardRows<T> rows(s, sample, token);
  along_units(begin, end, [&](Units u) HWY_ATTR {
    const FloatVec in = rows.gate(u, 0), forget = rows.gate(u, 1), candidate = rows.gate(u, 2),
                   out = rows.gate(u, 3);
    const FloatVec d = rows.dh(u), squashed = tanh_vec(u.get(rows.cells));
    const FloatVec dc = hn::MulAdd(hn::Mul(d, out), tanh_slope(squashed), u.get(rows.dcell));
    rows.set(u, 0, hn::Mul(hn::Mul(dc, candidate), sigmoid_slope(in)));
    rows.set(u, 1, hn::Mul(hn::Mul(dc, rows.or_zero(u, rows.cell_before)), sigmoid_slope(forget)));
    rows.set(u, 2, hn::Mul(hn::Mul(dc, in), tanh_slope(candidate)));
    rows.set(u, 3, hn::Mul(hn::Mul(d, squashed), sigmoid_slope(out)));
    u.put(hn::Mul(dc, forget), rows.dcell);
    u.put(hn::Zero(Floats()), rows.dstate);
  });
}

template <typename T>
void gru_backward(const RecurrentBackwardStep<T>& s, int64_t sample, int64_t token, int64_t begin,
                  int64_t end) {
  const BackwardRows<T> rows(s, sample, token);
  along_units(begin, end, [&](Units u) HWY_ATTR {
    const FloatVec reset = rows.gate(u, 0), update = rows.gate(u, 1), candidate = rows.gate(u, 2);
    const FloatVec d = rows.dh(u), before = rows.or_zero(u, rows.state_before);
    const FloatVec dn = hn::Mul(hn::Mul(d, one_minus(update)), tanh_slope(candidate));
    rows.set(u, 0, hn::Mul(hn::Mul(dn, u.get(rows.cells)), sigmoid_slope(reset)));
    rows.set(u, 1, hn::Mul(hn::Mul(d, hn::Sub(before, candidate)), sigmoid_slope(update)));
    rows.set(u, 2, dn, hn::Mul(dn, reset));
    u.put(hn::Mul(d, update), rows.dstate);
  });
}

template <typename T, bool kTanh>
void rnn_backward(const RecurrentBackwardStep<T>& s, int64_t sample, int64_t token, int64_t begin,
                  int64_t end) {
  const BackwardRows<T> rows(s, sample, token);
  along_units(begin, end, [&](Units u) HWY_ATTR {
    const FloatVec d = rows.dh(u), y = u.get(rows.y);
    rows.set(
        u, 0,
        kTanh ? hn::Mul(d, tanh_slope(y)) : hn::IfThenElseZero(hn::Gt(y, hn::Zero(Floats())), d));
    u.put(hn::Zero(Floats()), rows.dstate);
  });
}

template <typename T>
RecurrentFunctions<T> choose(RecurrentKind kind) {
  if (kind == RecurrentKind::lstm) return {lstm<T>, lstm_backward<T>};
  if (kind == RecurrentKind::gru) return {gru<T>, gru_backward<T>};
  if (kind == RecurrentKind::rnn_tanh) return {rnn<T, true>, rnn_backward<T, true>};
  return {rnn<T, false>, rnn_backward<T, false>};
}
AllRecurrentFunctions choose_all(RecurrentKind kind) {
  return {choose<float>(kind), choose<Bf16>(kind)};
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
HWY_EXPORT(choose_all);

AllRecurrentFunctions all_recurrent_functions(RecurrentKind kind) {
  return HWY_DYNAMIC_DISPATCH(choose_all)(kind);
}

}  // namespace dltrain
#endif
