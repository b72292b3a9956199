// A thread computes one unit of one sample.
#include "cuda/device_code.cuh"
#include "cuda/recurrent.h"

namespace dltrain {
namespace {

using Kind = RecurrentKind;
constexpr int kBlock = 256;

template <typename M>
__device__ M sigmoid_of(M x) {
  return M(1) / (M(1) + std::exp(-x));
}
// The derivatives of σ and tanh from their values.
template <typename M>
__device__ M sigmoid_slope(M y) {
  return y * (M(1) - y);
}
template <typename M>
__device__ M tanh_slope(M y) {
  return M(1) - y * y;
}

// Element i of an optional tensor.
template <typename T>
__device__ MathOf<T> or_zero(const void* data, int64_t i) {
  using M = MathOf<T>;
  return data == nullptr ? M(0) : static_cast<M>(static_cast<const T*>(data)[i]);
}

template <typename T>
__global__ void start_kernel(RecurrentCall c, RecurrentData d) {
  using M = MathOf<T>;
  const int64_t i = thread_index();
  if (i >= c.samples * c.hidden) return;
  const M state = or_zero<T>(d.initial_state, i);
  static_cast<T*>(d.state)[i] = static_cast<T>(state);
  static_cast<M*>(d.cell)[i] = c.kind == Kind::gru ? state : or_zero<T>(d.initial_cell, i);
}

// The sums and gates of one unit of one sample at one token.
template <typename T>
struct ForwardUnit {
  using M = MathOf<T>;
  const RecurrentCall& c;
  const RecurrentData& d;
  int64_t sample, unit, token_row;  // token_row: of sample and token
  bool has_product;

  __device__ M from_input(int64_t gate) const {
    return static_cast<M>(
        static_cast<const T*>(d.x)[token_row * c.width() + gate * c.hidden + unit]);
  }
  __device__ M from_state(int64_t gate) const {
    const int64_t at = gate * c.hidden + unit;
    const M product =
        has_product ? static_cast<const M*>(d.product)[sample * c.width() + at] : M(0);
    return product + or_zero<T>(d.bias, at);
  }
  __device__ M sum(int64_t gate) const { return from_input(gate) + from_state(gate); }
  __device__ M keep(int64_t gate, M value) const {
    if (d.gates != nullptr) {
      static_cast<T*>(d.gates)[token_row * c.width() + gate * c.hidden + unit] =
          static_cast<T>(value);
    }
    return value;
  }
  __device__ void keep_cell(M value) const {
    if (d.cells != nullptr) {
      static_cast<T*>(d.cells)[token_row * c.hidden + unit] = static_cast<T>(value);
    }
  }
};

template <typename T>
__global__ void step_kernel(RecurrentCall c, RecurrentData d, int64_t token, bool has_product) {
  using M = MathOf<T>;
  const int64_t i = thread_index();
  if (i >= c.samples * c.hidden) return;
  const int64_t sample = i / c.hidden, unit = i % c.hidden;
  const ForwardUnit<T> u{c, d, sample, unit, sample * c.tokens + token, has_product};
  M& cell = static_cast<M*>(d.cell)[i];
  M h;
  if (c.kind == Kind::lstm) {
    const M in = u.keep(0, sigmoid_of(u.sum(0))), forget = u.keep(1, sigmoid_of(u.sum(1)));
    const M candidate = u.keep(2, std::tanh(u.sum(2))), out = u.keep(3, sigmoid_of(u.sum(3)));
    cell = forget * cell + in * candidate;
    u.keep_cell(cell);
    h = out * std::tanh(cell);
  } else if (c.kind == Kind::gru) {
    const M reset = u.keep(0, sigmoid_of(u.sum(0))), update = u.keep(1, sigmoid_of(u.sum(1)));
    const M product = u.from_state(2);
    const M candidate = u.keep(2, std::tanh(u.from_input(2) + reset * product));
    u.keep_cell(product);
    h = update * (cell - candidate) + candidate;  // (1 − z)·n + z·h
    cell = h;
  } else {
    const M z = u.sum(0);
    h = c.kind == Kind::rnn_tanh ? std::tanh(z) : z < M(0) ? M(0) : z;
  }
  static_cast<T*>(d.y)[u.token_row * c.hidden + unit] = static_cast<T>(h);
  static_cast<T*>(d.state)[i] = static_cast<T>(h);
}

// The backward of one unit of one sample at one token.
template <typename T>
struct BackwardUnit {
  using M = MathOf<T>;
  const RecurrentCall& c;
  const RecurrentBackwardData& d;
  int64_t sample, unit, token;

  __device__ int64_t token_row() const { return sample * c.tokens + token; }
  __device__ M of(const void* tensor) const {
    return static_cast<M>(static_cast<const T*>(tensor)[token_row() * c.hidden + unit]);
  }
  __device__ M gate(int64_t k) const {
    return static_cast<M>(
        static_cast<const T*>(d.gates)[token_row() * c.width() + k * c.hidden + unit]);
  }
  __device__ M before(const void* states, const void* initial) const {
    const int64_t earlier = c.before(token);
    if (earlier < 0) return or_zero<T>(initial, sample * c.hidden + unit);
    return or_zero<T>(states, (sample * c.tokens + earlier) * c.hidden + unit);
  }
  // Stores a gate's gradients towards input and state.
  __device__ void set(int64_t k, M value) const { set(k, value, value); }
  __device__ void set(int64_t k, M to_input, M to_state) const {
    const int64_t at = k * c.hidden + unit;
    static_cast<T*>(d.dx)[token_row() * c.width() + at] = static_cast<T>(to_input);
    static_cast<T*>(d.dz)[sample * c.width() + at] = static_cast<T>(to_state);
    if (d.dz_all != d.dx) {
      static_cast<T*>(d.dz_all)[token_row() * c.width() + at] = static_cast<T>(to_state);
    }
  }
};

template <typename T>
__global__ void backward_kernel(RecurrentCall c, RecurrentBackwardData d, int64_t token,
                                bool is_last) {
  using M = MathOf<T>;
  const int64_t i = thread_index();
  if (i >= c.samples * c.hidden) return;
  const BackwardUnit<T> u{c, d, i / c.hidden, i % c.hidden, token};
  M& dstate = static_cast<M*>(d.dstate)[i];
  M& dcell = static_cast<M*>(d.dcell)[i];
  const M dh = u.of(d.dy) + (is_last ? M(0) : dstate);
  M past = 0;  // the product
  if (c.kind == Kind::lstm) {
    const M in = u.gate(0), forget = u.gate(1), candidate = u.gate(2), out = u.gate(3);
    const M squashed = std::tanh(u.of(d.cells));
    const M dc = (is_last ? M(0) : dcell) + dh * out * tanh_slope(squashed);
    u.set(0, dc * candidate * sigmoid_slope(in));
    u.set(1, dc * u.before(d.cells, d.initial_cell) * sigmoid_slope(forget));
    u.set(2, dc * in * tanh_slope(candidate));
    u.set(3, dh * squashed * sigmoid_slope(out));
    dcell = dc * forget;
  } else if (c.kind == Kind::gru) {
    const M reset = u.gate(0), update = u.gate(1), candidate = u.gate(2);
    const M dn = dh * (M(1) - update) * tanh_slope(candidate);
    u.set(0, dn * u.of(d.cells) * sigmoid_slope(reset));
    u.set(1, dh * (u.before(d.y, d.initial_state) - candidate) * sigmoid_slope(update));
    u.set(2, dn, dn * reset);
    past = dh * update;
  } else {
    const M y = u.of(d.y);
    u.set(0, c.kind == Kind::rnn_tanh ? dh * tanh_slope(y) : y > M(0) ? dh : M(0));
  }
  dstate = past;
}

template <typename T>
__global__ void states_before_kernel(RecurrentCall c, const T* y, const T* initial, T* before) {
  for (int64_t i = thread_index(); i < c.samples * c.tokens * c.hidden; i += thread_count()) {
    const int64_t unit = i % c.hidden, token = i / c.hidden % c.tokens;
    const int64_t sample = i / (c.hidden * c.tokens), earlier = c.before(token);
    if (earlier >= 0) {
      before[i] = y[(sample * c.tokens + earlier) * c.hidden + unit];
    } else {
      before[i] = initial == nullptr ? T(0) : initial[sample * c.hidden + unit];
    }
  }
}

unsigned unit_grid(const RecurrentCall& c) {
  return static_cast<unsigned>(divide_up(c.samples * c.hidden, kBlock));
}

}  // namespace

void launch_recurrent_start(const RecurrentCall& call, const RecurrentData& data,
                            CudaStream stream) {
  if (call.samples == 0) return;
  with_floating(call.dtype, [&]<typename T>(T) {
    DLTRAIN_LAUNCH(start_kernel<T>, unit_grid(call), kBlock, stream, call, data);
  });
}

void launch_recurrent_step(const RecurrentCall& call, const RecurrentData& data, int64_t i,
                           bool has_product, CudaStream stream) {
  if (call.samples == 0) return;
  with_floating(call.dtype, [&]<typename T>(T) {
    DLTRAIN_LAUNCH(step_kernel<T>, unit_grid(call), kBlock, stream, call, data, call.token(i),
                   has_product);
  });
}

void launch_recurrent_backward_step(const RecurrentCall& call, const RecurrentBackwardData& data,
                                    int64_t i, CudaStream stream) {
  if (call.samples == 0) return;
  const bool is_last = i == call.tokens - 1;
  with_floating(call.dtype, [&]<typename T>(T) {
    DLTRAIN_LAUNCH(backward_kernel<T>, unit_grid(call), kBlock, stream, call, data, call.token(i),
                   is_last);
  });
}

void launch_states_before(const RecurrentCall& call, const void* y, const void* initial_state,
                          void* before, CudaStream stream) {
  const int64_t count = call.samples * call.tokens * call.hidden;
  if (count == 0) return;
  with_floating(call.dtype, [&]<typename T>(T) {
    DLTRAIN_LAUNCH(states_before_kernel<T>, stride_grid(count, kBlock), kBlock, stream, call,
                   static_cast<const T*>(y), static_cast<const T*>(initial_state),
                   static_cast<T*>(before));
  });
}

}  // namespace dltrain
