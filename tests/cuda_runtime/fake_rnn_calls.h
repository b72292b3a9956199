// The recurrent networks of the tests' cuDNN (fake_cudnn_rnn.cpp), computed in double by plain
// loops when the stream reaches them. A call computes nothing if its predecessor has not run.
#pragma once

#include <algorithm>
#include <cmath>

#include "cuda_runtime/fake_rnn.h"

namespace dltrain::fake_cuda {

inline double sigmoid(double v) {
  return 1 / (1 + std::exp(-v));
}

// Row `row` of product i with a vector: the inputs of a token, or a state.
template <typename Get>
double product(const RnnCall& c, int i, int64_t row, int64_t width, const Get& get) {
  double sum = c.rnn.bias ? c.bias(i, c.weights).get(row) : 0;
  const RnnNumbers w = c.matrix(i, c.weights);
  for (int64_t k = 0; k < width; ++k) sum += w.get(row * width + k) * get(k);
  return sum;
}

struct RnnForwardCall : RnnCall {
  const void *x_data = nullptr, *hx = nullptr, *cx = nullptr;
  void *y = nullptr, *hy = nullptr, *cy = nullptr, *reserve = nullptr;

  void operator()() const {
    for (int64_t n = 0; n < x.samples; ++n) sample(n);
    if (reserve != nullptr) *static_cast<double*>(reserve) = kForwardDone;
  }

  void sample(int64_t n) const {
    const auto units = static_cast<size_t>(H());
    std::vector<double> h(units), cell(units), next(units);
    for (size_t u = 0; u < units; ++u) {
      const int64_t at = n * H() + static_cast<int64_t>(u);
      if (hx != nullptr) h[u] = of(hx).get(at);
      if (cx != nullptr) cell[u] = of(cx).get(at);
    }
    for (int64_t t = 0; t < x.tokens; ++t) {
      for (size_t u = 0; u < units; ++u) next[u] = unit(token_row(n, t), u, h, cell);
      h = next;
    }
    for (size_t u = 0; u < units; ++u) {
      const int64_t at = n * H() + static_cast<int64_t>(u);
      if (hy != nullptr) of(hy).set(at, h[u]);
      if (cy != nullptr) of(cy).set(at, cell[u]);
    }
  }

  double unit(int64_t p, size_t u, const std::vector<double>& h, std::vector<double>& cell) const {
    const auto row = static_cast<int64_t>(u);
    const auto from_input = [&](int gate) {
      return product(*this, gate, row, x.width,
                     [&](int64_t k) { return of(x_data).get(p * x.width + k); });
    };
    const auto from_state = [&](int gate) {
      return product(*this, G() + gate, row, H(),
                     [&](int64_t k) { return h[static_cast<size_t>(k)]; });
    };
    const auto keep = [&](int gate, double value) {
      if (reserve != nullptr) gates(reserve, p)[gate * H() + row] = value;
      return value;
    };
    double out = 0, kept_cell = 0;
    if (rnn.mode == CUDNN_LSTM) {
      const double i = keep(0, sigmoid(from_input(0) + from_state(0))),
                   f = keep(1, sigmoid(from_input(1) + from_state(1))),
                   g = keep(2, std::tanh(from_input(2) + from_state(2))),
                   o = keep(3, sigmoid(from_input(3) + from_state(3)));
      kept_cell = cell[u] = f * cell[u] + i * g;
      out = o * std::tanh(cell[u]);
    } else if (rnn.mode == CUDNN_GRU) {
      const double r = keep(0, sigmoid(from_input(0) + from_state(0))),
                   z = keep(1, sigmoid(from_input(1) + from_state(1)));
      kept_cell = from_state(2);
      out = (1 - z) * keep(2, std::tanh(from_input(2) + r * kept_cell)) + z * h[u];
    } else {
      const double sum = from_input(0) + from_state(0);
      out = keep(0, rnn.mode == CUDNN_RNN_TANH ? std::tanh(sum) : std::max(sum, 0.0));
    }
    if (reserve != nullptr) cells(reserve, p)[row] = kept_cell;
    of(y).set(p * H() + row, out);
    return out;
  }
};

struct RnnDataCall : RnnCall {
  const void *y = nullptr, *dy = nullptr, *hx = nullptr, *cx = nullptr;
  void *dx = nullptr, *reserve = nullptr;

  void operator()() const {
    if (*static_cast<double*>(reserve) != kForwardDone) return;  // dx stays rubbish
    for (int64_t n = 0; n < x.samples; ++n) {
      std::vector<double> dh(static_cast<size_t>(H())), dc(dh.size());
      for (int64_t t = x.tokens - 1; t >= 0; --t) token(n, t, dh, dc);
    }
    *static_cast<double*>(reserve) = kDataDone;
  }

  double state_before(const void* states, const void* first, int64_t n, int64_t t,
                      int64_t u) const {
    if (t > 0) return of(states).get(token_row(n, t - 1) * H() + u);
    return first == nullptr ? 0 : of(first).get(n * H() + u);
  }

  void token(int64_t n, int64_t t, std::vector<double>& dh, std::vector<double>& dc) const {
    const int64_t p = token_row(n, t);
    double *in = to_input(reserve, p), *st = to_state(reserve, p);
    for (int64_t u = 0; u < H(); ++u) {
      unit(n, t, u, dh[static_cast<size_t>(u)], dc[static_cast<size_t>(u)]);
    }
    for (int64_t k = 0; k < H(); ++k) {
      for (int g = 0; g < G(); ++g) {
        const RnnNumbers w = matrix(G() + g, weights);
        for (int64_t u = 0; u < H(); ++u) {
          dh[static_cast<size_t>(k)] += st[g * H() + u] * w.get(u * H() + k);
        }
      }
    }
    for (int64_t k = 0; k < x.width; ++k) {
      double sum = 0;
      for (int g = 0; g < G(); ++g) {
        const RnnNumbers w = matrix(g, weights);
        for (int64_t u = 0; u < H(); ++u) sum += in[g * H() + u] * w.get(u * x.width + k);
      }
      of(dx).set(p * x.width + k, sum);
    }
  }

  // Gradients of the gates of one unit; dh becomes what flows past the product.
  void unit(int64_t n, int64_t t, int64_t u, double& dh, double& dc) const {
    const int64_t p = token_row(n, t);
    const double *gate = gates(reserve, p), *cell = cells(reserve, p);
    double *in = to_input(reserve, p), *st = to_state(reserve, p);
    const double d = dh + of(dy).get(p * H() + u);
    dh = 0;
    const auto set = [&](int g, double value) { in[g * H() + u] = st[g * H() + u] = value; };
    if (rnn.mode == CUDNN_LSTM) {
      const double i = gate[u], f = gate[H() + u], g = gate[2 * H() + u], o = gate[3 * H() + u];
      const double squashed = std::tanh(cell[u]);
      const double before = t > 0           ? cells(reserve, token_row(n, t - 1))[u]
                            : cx == nullptr ? 0
                                            : of(cx).get(n * H() + u);
      const double to_cell = dc + d * o * (1 - squashed * squashed);
      set(0, to_cell * g * i * (1 - i));
      set(1, to_cell * before * f * (1 - f));
      set(2, to_cell * i * (1 - g * g));
      set(3, d * squashed * o * (1 - o));
      dc = to_cell * f;
    } else if (rnn.mode == CUDNN_GRU) {
      const double r = gate[u], z = gate[H() + u], candidate = gate[2 * H() + u];
      const double new_gate = d * (1 - z) * (1 - candidate * candidate);
      set(0, new_gate * cell[u] * r * (1 - r));
      set(1, d * (state_before(y, hx, n, t, u) - candidate) * z * (1 - z));
      set(2, new_gate);
      st[2 * H() + u] = new_gate * r;
      dh = d * z;
    } else {
      const double out = gate[u];
      set(0, rnn.mode == CUDNN_RNN_TANH ? d * (1 - out * out) : (out > 0 ? d : 0));
    }
  }
};

struct RnnWeightsCall : RnnCall {
  const void *x_data = nullptr, *y = nullptr, *hx = nullptr;
  void* reserve = nullptr;

  // `weights` are the gradients here: they are added to.
  void operator()() const {
    if (*static_cast<double*>(reserve) != kDataDone) return;
    for (int i = 0; i < 2 * G(); ++i) {
      const bool of_input = i < G();
      const int64_t gate = of_input ? i : i - G(), width = of_input ? x.width : H();
      for (int64_t u = 0; u < H(); ++u) {
        for (int64_t k = 0; k < width; ++k)
          add(matrix(i, weights), u * width + k, of_input, gate, u, k);
        if (rnn.bias) add(bias(i, weights), u, of_input, gate, u, -1);
      }
    }
  }

  // The sum over all tokens of the gate's gradient times operand k (−1: times one).
  void add(const RnnNumbers& to, int64_t at, bool of_input, int64_t gate, int64_t u,
           int64_t k) const {
    double sum = to.get(at);
    for (int64_t n = 0; n < x.samples; ++n) {
      for (int64_t t = 0; t < x.tokens; ++t) {
        const int64_t p = token_row(n, t);
        const double d = (of_input ? to_input(reserve, p) : to_state(reserve, p))[gate * H() + u];
        double operand = 1;
        if (k >= 0 && of_input) operand = of(x_data).get(p * x.width + k);
        if (k >= 0 && !of_input) {
          operand = t > 0           ? of(y).get((p - 1) * H() + k)
                    : hx != nullptr ? of(hx).get(n * H() + k)
                                    : 0;
        }
        sum += d * operand;
      }
    }
    to.set(at, sum);
  }
};

}  // namespace dltrain::fake_cuda
