// recurrent and its backward, unit by unit, in double.
#include "ops/recurrent.h"

#include <algorithm>
#include <cmath>

#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

double sigmoid_recurrent(double x) {
  return 1 / (1 + std::exp(-x));
}

// Returns one unit of the state before a token, or of the initial state.
template <typename T>
double state_before(const RecurrentSizes& s, const T* states, const T* initial, int64_t sample,
                    int64_t token, int64_t unit) {
  const int64_t before = s.before(token);
  if (before >= 0) return states[(sample * s.tokens + before) * s.hidden + unit];
  return initial == nullptr ? 0 : initial[sample * s.hidden + unit];
}

template <typename T>
struct Recurrent {
  explicit Recurrent(const NaiveCall& call)
      : c(call),
        s(recurrent_sizes(c.outputs[0].shape, c.attributes)),
        h(static_cast<size_t>(s.hidden)),
        cell(h.size()),
        z(static_cast<size_t>(s.width())) {}

  void run() {
    const T *h0 = c.input<T>(3), *c0 = c.input<T>(4);
    for (int64_t n = 0; n < s.samples; ++n) {
      for (int64_t j = 0; j < s.hidden; ++j) {
        const auto u = static_cast<size_t>(j);
        h[u] = h0 == nullptr ? 0 : h0[n * s.hidden + j];
        cell[u] = c0 == nullptr ? 0 : c0[n * s.hidden + j];
      }
      for (int64_t i = 0; i < s.tokens; ++i) token(n, s.token(i));
    }
  }

  // Computes z = W_hh·h + b_hh, then the new state.
  void token(int64_t n, int64_t t) {
    const T *w = c.input<T>(1), *b = c.input<T>(2);
    for (int64_t row = 0; row < s.width(); ++row) {
      double sum = b == nullptr ? 0 : b[row];
      for (int64_t j = 0; j < s.hidden; ++j) {
        sum += c.factor(w[row * s.hidden + j]) * c.factor(h[static_cast<size_t>(j)]);
      }
      z[static_cast<size_t>(row)] = sum;
    }
    const int64_t token_row = n * s.tokens + t;
    const T* x = c.input<T>(0) + token_row * s.width();
    for (int64_t j = 0; j < s.hidden; ++j) unit(token_row, x, j);
  }

  void unit(int64_t token_row, const T* x, int64_t j) {
    const auto u = static_cast<size_t>(j);
    const auto from_input = [&](int64_t gate) { return double{x[gate * s.hidden + j]}; };
    const auto from_state = [&](int64_t gate) {
      return z[static_cast<size_t>(gate * s.hidden + j)];
    };
    const auto keep = [&](int64_t gate, double value) {
      c.put<T>(1, token_row * s.width() + gate * s.hidden + j, value);
      return value;
    };
    const auto sum = [&](int64_t gate) { return from_input(gate) + from_state(gate); };
    if (s.kind == RecurrentKind::lstm) {
      const double in = keep(0, sigmoid_recurrent(sum(0))),
                   forget = keep(1, sigmoid_recurrent(sum(1)));
      const double candidate = keep(2, std::tanh(sum(2))), out = keep(3, sigmoid_recurrent(sum(3)));
      cell[u] = forget * cell[u] + in * candidate;
      h[u] = out * std::tanh(cell[u]);
      c.put<T>(2, token_row * s.hidden + j, cell[u]);
    } else if (s.kind == RecurrentKind::gru) {
      const double reset = keep(0, sigmoid_recurrent(sum(0))),
                   update = keep(1, sigmoid_recurrent(sum(1)));
      const double candidate = keep(2, std::tanh(from_input(2) + reset * from_state(2)));
      c.put<T>(2, token_row * s.hidden + j, from_state(2));
      h[u] = (1 - update) * candidate + update * h[u];
    } else {
      h[u] = s.kind == RecurrentKind::rnn_tanh ? std::tanh(sum(0)) : std::max(sum(0), 0.0);
    }
    c.put<T>(0, token_row * s.hidden + j, h[u]);
  }

  const NaiveCall& c;
  RecurrentSizes s;
  std::vector<double> h, cell, z;
};

template <typename T>
struct RecurrentBackward {
  explicit RecurrentBackward(const NaiveCall& call)
      : c(call),
        s(recurrent_sizes(c.inputs[1].shape, c.attributes)),
        dh(static_cast<size_t>(s.hidden)),
        dcell(dh.size()),
        to_input(static_cast<size_t>(s.width())),
        to_state(to_input.size()),
        dw(to_input.size() * dh.size()),
        db(to_input.size()) {}

  void run() {
    for (int64_t n = 0; n < s.samples; ++n) {
      std::fill(dh.begin(), dh.end(), 0.0);
      std::fill(dcell.begin(), dcell.end(), 0.0);
      for (int64_t i = s.tokens - 1; i >= 0; --i) token(n, s.token(i));
    }
    c.put_all<T>(1, dw);
    if (c.outputs.size() > 2) c.put_all<T>(2, db);
  }

  void token(int64_t n, int64_t t) {
    const int64_t token_row = n * s.tokens + t;
    for (int64_t j = 0; j < s.hidden; ++j) unit(n, t, j);
    const T *w = c.input<T>(4), *h0 = c.input<T>(6);
    for (int64_t row = 0; row < s.width(); ++row) {
      const auto r = static_cast<size_t>(row);
      c.put<T>(0, token_row * s.width() + row, to_input[r]);
      db[r] += to_state[r];
      for (int64_t j = 0; j < s.hidden; ++j) {
        dh[static_cast<size_t>(j)] += c.factor(to_state[r]) * c.factor(w[row * s.hidden + j]);
        dw[static_cast<size_t>(row * s.hidden + j)] +=
            c.factor(to_state[r]) * c.factor(state_before(s, c.input<T>(1), h0, n, t, j));
      }
    }
  }

  // Computes the gradients of the gates of one unit; dh becomes the gradient that bypasses w.
  void unit(int64_t n, int64_t t, int64_t j) {
    const auto u = static_cast<size_t>(j), hidden = static_cast<size_t>(s.hidden);
    const int64_t token_row = n * s.tokens + t;
    const double y = c.input<T>(1)[token_row * s.hidden + j];
    const double d = dh[u] + c.input<T>(0)[token_row * s.hidden + j];
    dh[u] = 0;
    const auto gate = [&](int64_t k) -> double {
      return c.input<T>(2)[token_row * s.width() + k * s.hidden + j];
    };
    const auto set = [&](size_t k, double value) {
      to_input[k * hidden + u] = to_state[k * hidden + u] = value;
    };
    if (s.kind == RecurrentKind::lstm) {
      const double in = gate(0), forget = gate(1), candidate = gate(2), out = gate(3);
      const double before = state_before(s, c.input<T>(3), c.input<T>(7), n, t, j);
      const double squashed = std::tanh(double{c.input<T>(3)[token_row * s.hidden + j]});
      const double dc = dcell[u] + d * out * (1 - squashed * squashed);
      set(0, dc * candidate * in * (1 - in));
      set(1, dc * before * forget * (1 - forget));
      set(2, dc * in * (1 - candidate * candidate));
      set(3, d * squashed * out * (1 - out));
      dcell[u] = dc * forget;
    } else if (s.kind == RecurrentKind::gru) {
      const double reset = gate(0), update = gate(1), candidate = gate(2);
      const double product = c.input<T>(3)[token_row * s.hidden + j];
      const double before = state_before(s, c.input<T>(1), c.input<T>(6), n, t, j);
      const double dn = d * (1 - update) * (1 - candidate * candidate);
      set(0, dn * product * reset * (1 - reset));
      set(1, d * (before - candidate) * update * (1 - update));
      to_input[2 * hidden + u] = dn;
      to_state[2 * hidden + u] = dn * reset;
      dh[u] = d * update;
    } else {
      set(0, s.kind == RecurrentKind::rnn_tanh ? d * (1 - y * y) : (y > 0 ? d : 0));
    }
  }

  const NaiveCall& c;
  RecurrentSizes s;
  std::vector<double> dh, dcell, to_input, to_state, dw, db;
};

}  // namespace

std::unique_ptr<Kernel> reference_recurrent(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) { Recurrent<T>(c).run(); });
}
std::unique_ptr<Kernel> reference_recurrent_backward(const KernelRequest& request) {
  return make_naive(request,
                    []<typename T>(const NaiveCall& c, T) { RecurrentBackward<T>(c).run(); });
}

}  // namespace dltrain
