// cuDNN's RNN interface for tests, as documented for cuDNN 9: one layer and one direction, tensors
// with the samples outside, of equal lengths. It computes in double by plain loops when the stream
// comes to it, and refuses what the documents refuse: descriptors that do not fit each other,
// spaces of another size, a backward without its forward, gradients of weights before those of the
// data.
//
// Its weights lie as cuDNN may lay them: those of a GRU from the last matrix to the first, with
// gaps.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <cudnn_adv.h>

#include "cuda_runtime/fake_runtime.h"
#include "tensor/low_precision.h"

// cuDNN's opaque types.
struct cudnnTensorStruct {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int> extent, stride;
};
struct cudnnRNNStruct {
  cudnnRNNMode_t mode = CUDNN_LSTM;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool bias = false;
  int inputs = 0, hidden = 0;
  int gates() const { return mode == CUDNN_LSTM ? 4 : mode == CUDNN_GRU ? 3 : 1; }
  size_t element() const { return type == CUDNN_DATA_FLOAT ? 4 : 2; }
};
struct cudnnRNNDataStruct {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int tokens = 0, samples = 0, width = 0;
};

namespace dltrain::fake_cuda {
namespace {

constexpr size_t kGap = 64, kWorkspace = 4096;
// What the reserve begins with.
constexpr double kForwardDone = 1234, kDataDone = 5678;

// A dense tensor of any of the three formats.
struct Numbers {
  cudnnDataType_t type;
  void* data;

  double get(int64_t i) const {
    if (type == CUDNN_DATA_FLOAT) return static_cast<float*>(data)[i];
    return type == CUDNN_DATA_HALF ? to_f32(static_cast<F16*>(data)[i])
                                   : to_f32(static_cast<Bf16*>(data)[i]);
  }
  void set(int64_t i, double value) const {
    const auto narrow = static_cast<float>(value);
    if (type == CUDNN_DATA_FLOAT) {
      static_cast<float*>(data)[i] = narrow;
    } else if (type == CUDNN_DATA_HALF) {
      from_f32(narrow, static_cast<F16*>(data)[i]);
    } else {
      from_f32(narrow, static_cast<Bf16*>(data)[i]);
    }
  }
};

// Bytes before matrix or bias `i` of 2 · gates.
struct Layout {
  explicit Layout(const cudnnRNNStruct& rnn) : rnn_(rnn), count_(2 * rnn.gates()) {}

  int64_t elements(int i) const {
    return int64_t{rnn_.hidden} * (i < rnn_.gates() ? rnn_.inputs : rnn_.hidden);
  }
  size_t matrix(int i) const {
    size_t at = 0;
    for (int k = 0; k < count_; ++k) {
      if (reversed() ? k > i : k < i) at += bytes(elements(k));
    }
    return at;
  }
  size_t bias(int i) const { return all_matrices() + static_cast<size_t>(i) * bytes(rnn_.hidden); }
  size_t total() const {
    return all_matrices() + (rnn_.bias ? static_cast<size_t>(count_) * bytes(rnn_.hidden) : 0);
  }

 private:
  bool reversed() const { return rnn_.mode == CUDNN_GRU; }
  size_t bytes(int64_t elements) const {
    return static_cast<size_t>(elements) * rnn_.element() + (reversed() ? kGap : 0);
  }
  size_t all_matrices() const {
    size_t sum = 0;
    for (int i = 0; i < count_; ++i) sum += bytes(elements(i));
    return sum;
  }

  cudnnRNNStruct rnn_;
  int count_;
};

// One call, with everything that it needs when the stream comes to it.
struct Call {
  cudnnRNNStruct rnn;
  cudnnRNNDataStruct x;
  void* weights = nullptr;

  int G() const { return rnn.gates(); }
  int64_t H() const { return rnn.hidden; }
  int64_t place(int64_t sample, int64_t token) const { return sample * x.tokens + token; }
  Numbers of(const void* data) const { return {rnn.type, const_cast<void*>(data)}; }
  Numbers matrix(int i, void* space) const {
    return of(static_cast<std::byte*>(space) + Layout(rnn).matrix(i));
  }
  Numbers bias(int i, void* space) const {
    return of(static_cast<std::byte*>(space) + Layout(rnn).bias(i));
  }

  // The reserve: a mark, then for each token the gates, the cells (GRU: the new gate's product with
  // the state) and, after the backward of the data, the gradients of both products.
  int64_t token_doubles() const { return (3 * G() + 1) * H(); }
  size_t reserve_bytes() const {
    return static_cast<size_t>(1 + token_doubles() * x.samples * x.tokens) * sizeof(double);
  }
  double* gates(void* reserve, int64_t place) const {
    return static_cast<double*>(reserve) + 1 + place * token_doubles();
  }
  double* cells(void* reserve, int64_t place) const { return gates(reserve, place) + G() * H(); }
  double* to_input(void* reserve, int64_t place) const { return cells(reserve, place) + H(); }
  double* to_state(void* reserve, int64_t place) const {
    return to_input(reserve, place) + G() * H();
  }
};

double sigmoid(double v) {
  return 1 / (1 + std::exp(-v));
}

// Row `row` of product i with a vector: the inputs of a token, or a state.
template <typename Get>
double product(const Call& c, int i, int64_t row, int64_t width, const Get& get) {
  double sum = c.rnn.bias ? c.bias(i, c.weights).get(row) : 0;
  const Numbers w = c.matrix(i, c.weights);
  for (int64_t k = 0; k < width; ++k) sum += w.get(row * width + k) * get(k);
  return sum;
}

struct ForwardCall : Call {
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
      for (size_t u = 0; u < units; ++u) next[u] = unit(place(n, t), u, h, cell);
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

struct DataCall : Call {
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
    if (t > 0) return of(states).get(place(n, t - 1) * H() + u);
    return first == nullptr ? 0 : of(first).get(n * H() + u);
  }

  void token(int64_t n, int64_t t, std::vector<double>& dh, std::vector<double>& dc) const {
    const int64_t p = place(n, t);
    double *in = to_input(reserve, p), *st = to_state(reserve, p);
    for (int64_t u = 0; u < H(); ++u) {
      unit(n, t, u, dh[static_cast<size_t>(u)], dc[static_cast<size_t>(u)]);
    }
    for (int64_t k = 0; k < H(); ++k) {
      for (int g = 0; g < G(); ++g) {
        const Numbers w = matrix(G() + g, weights);
        for (int64_t u = 0; u < H(); ++u) {
          dh[static_cast<size_t>(k)] += st[g * H() + u] * w.get(u * H() + k);
        }
      }
    }
    for (int64_t k = 0; k < x.width; ++k) {
      double sum = 0;
      for (int g = 0; g < G(); ++g) {
        const Numbers w = matrix(g, weights);
        for (int64_t u = 0; u < H(); ++u) sum += in[g * H() + u] * w.get(u * x.width + k);
      }
      of(dx).set(p * x.width + k, sum);
    }
  }

  // Gradients of the gates of one unit; dh becomes what flows past the product.
  void unit(int64_t n, int64_t t, int64_t u, double& dh, double& dc) const {
    const int64_t p = place(n, t);
    const double *gate = gates(reserve, p), *cell = cells(reserve, p);
    double *in = to_input(reserve, p), *st = to_state(reserve, p);
    const double d = dh + of(dy).get(p * H() + u);
    dh = 0;
    const auto set = [&](int g, double value) { in[g * H() + u] = st[g * H() + u] = value; };
    if (rnn.mode == CUDNN_LSTM) {
      const double i = gate[u], f = gate[H() + u], g = gate[2 * H() + u], o = gate[3 * H() + u];
      const double squashed = std::tanh(cell[u]);
      const double before = t > 0           ? cells(reserve, place(n, t - 1))[u]
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

struct WeightsCall : Call {
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
  void add(const Numbers& to, int64_t at, bool of_input, int64_t gate, int64_t u, int64_t k) const {
    double sum = to.get(at);
    for (int64_t n = 0; n < x.samples; ++n) {
      for (int64_t t = 0; t < x.tokens; ++t) {
        const int64_t p = place(n, t);
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

// True when the descriptors of a call belong together and its spaces have the sizes that were asked
// for. The workspace is overwritten when the call runs.
bool fits(const cudnnRNNStruct* rnn, const int32_t* lengths, const cudnnRNNDataStruct* x,
          const cudnnRNNDataStruct* y, const cudnnTensorStruct* h, size_t weight_bytes,
          size_t work_bytes, const void* work) {
  return lengths == nullptr && x->width == rnn->inputs && y->width == rnn->hidden &&
         x->samples == y->samples && x->tokens == y->tokens && x->type == rnn->type &&
         y->type == rnn->type && h->type == rnn->type &&
         h->extent == std::vector<int>{1, x->samples, rnn->hidden} &&
         weight_bytes == Layout(*rnn).total() && work_bytes == kWorkspace && work != nullptr;
}

template <typename T>
T call_of(const cudnnRNNStruct* rnn, const cudnnRNNDataStruct* x, const void* weights) {
  T call;
  call.rnn = *rnn;
  call.x = *x;
  call.weights = const_cast<void*>(weights);
  return call;
}

template <typename T>
cudnnStatus_t queue_call(cudnnHandle_t handle, const T& call, void* work) {
  run_on(stream_of(handle), rnn_time(), [call, work] {
    std::memset(work, 0xff, kWorkspace);
    call();
  });
  return CUDNN_STATUS_SUCCESS;
}

template <typename T>
cudnnStatus_t make(T** out) {
  *out = new T;
  return CUDNN_STATUS_SUCCESS;
}
template <typename T>
cudnnStatus_t destroy(T* object) {
  delete object;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace
}  // namespace dltrain::fake_cuda

using namespace dltrain::fake_cuda;

extern "C" {

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* out) {
  return make(out);
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
  return destroy(descriptor);
}
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t out, cudnnDataType_t type,
                                         int rank, const int extent[], const int stride[]) {
  *out = {type, {extent, extent + rank}, {stride, stride + rank}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t tensor, int most,
                                         cudnnDataType_t* type, int* rank, int extent[],
                                         int stride[]) {
  *type = tensor->type;
  *rank = static_cast<int>(tensor->extent.size());
  for (int i = 0; i < std::min(most, *rank); ++i) {
    extent[i] = tensor->extent[static_cast<size_t>(i)];
    stride[i] = tensor->stride[static_cast<size_t>(i)];
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t* out) {
  return make(out);
}
cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t rnn) {
  return destroy(rnn);
}
cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t algorithm,
                                       cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias,
                                       cudnnDirectionMode_t direction, cudnnRNNInputMode_t input,
                                       cudnnDataType_t type, cudnnDataType_t precision,
                                       cudnnMathType_t math, int32_t inputs, int32_t hidden,
                                       int32_t projection, int32_t layers,
                                       cudnnDropoutDescriptor_t dropout, uint32_t flags) {
  if (algorithm != CUDNN_RNN_ALGO_STANDARD || direction != CUDNN_UNIDIRECTIONAL ||
      input != CUDNN_LINEAR_INPUT || precision != CUDNN_DATA_FLOAT || projection != hidden ||
      layers != 1 || dropout != nullptr || flags != CUDNN_RNN_PADDED_IO_ENABLED ||
      (math == CUDNN_TENSOR_OP_MATH) == (type == CUDNN_DATA_FLOAT)) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  *rnn = {mode, type, bias == CUDNN_RNN_DOUBLE_BIAS, inputs, hidden};
  return rnn_time() >= 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t* out) {
  return make(out);
}
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t data) {
  return destroy(data);
}
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t data, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int tokens, int samples,
                                        int width, const int lengths[], void*) {
  const bool whole =
      std::all_of(lengths, lengths + samples, [&](int length) { return length == tokens; });
  if (layout != CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED || !whole) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  *data = {type, tokens, samples, width};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t, cudnnRNNDescriptor_t rnn, size_t* bytes) {
  *bytes = Layout(*rnn).total();
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t, cudnnRNNDescriptor_t rnn,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                        size_t* work, size_t* reserve) {
  *work = kWorkspace;
  *reserve = mode == CUDNN_FWD_MODE_TRAINING ? call_of<Call>(rnn, x, nullptr).reserve_bytes() : 0;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t, cudnnRNNDescriptor_t rnn, int32_t layer,
                                      size_t bytes, const void* space, int32_t i,
                                      cudnnTensorDescriptor_t matrix, void** matrix_at,
                                      cudnnTensorDescriptor_t bias, void** bias_at) {
  const Layout layout(*rnn);
  if (layer != 0 || i < 0 || i >= 2 * rnn->gates() || bytes != layout.total()) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  auto* base = static_cast<std::byte*>(const_cast<void*>(space));
  const int width = i < rnn->gates() ? rnn->inputs : rnn->hidden;
  *matrix = {rnn->type, {1, rnn->hidden, width}, {rnn->hidden * width, width, 1}};
  *bias = {rnn->type, {1, rnn->hidden, 1}, {rnn->hidden, 1, 1}};
  *matrix_at = base + layout.matrix(i);
  *bias_at = rnn->bias ? base + layout.bias(i) : nullptr;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                              cudnnForwardMode_t mode, const int32_t lengths[],
                              cudnnRNNDataDescriptor_t x, const void* x_data,
                              cudnnRNNDataDescriptor_t y, void* y_data, cudnnTensorDescriptor_t h,
                              const void* hx, void* hy, cudnnTensorDescriptor_t, const void* cx,
                              void* cy, size_t weight_bytes, const void* weights, size_t work_bytes,
                              void* work, size_t reserve_bytes, void* reserve) {
  auto call = call_of<ForwardCall>(rnn, x, weights);
  const bool trains = mode == CUDNN_FWD_MODE_TRAINING;
  if (!fits(rnn, lengths, x, y, h, weight_bytes, work_bytes, work) ||
      reserve_bytes != (trains ? call.reserve_bytes() : 0) || trains != (reserve != nullptr)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  call.x_data = x_data;
  call.hx = hx;
  call.cx = cx;
  call.y = y_data;
  call.hy = hy;
  call.cy = cy;
  call.reserve = reserve;
  return queue_call(handle, call, work);
}

cudnnStatus_t cudnnRNNBackwardData_v8(
    cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t lengths[],
    cudnnRNNDataDescriptor_t y, const void* y_data, const void* dy, cudnnRNNDataDescriptor_t x,
    void* dx, cudnnTensorDescriptor_t h, const void* hx, const void* dhy, void* dhx,
    cudnnTensorDescriptor_t, const void* cx, const void* dcy, void* dcx, size_t weight_bytes,
    const void* weights, size_t work_bytes, void* work, size_t reserve_bytes, void* reserve) {
  auto call = call_of<DataCall>(rnn, x, weights);
  if (!fits(rnn, lengths, x, y, h, weight_bytes, work_bytes, work) ||
      reserve_bytes != call.reserve_bytes() || dhy != nullptr || dhx != nullptr || dcy != nullptr ||
      dcx != nullptr) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  call.y = y_data;
  call.dy = dy;
  call.hx = hx;
  call.cx = cx;
  call.dx = dx;
  call.reserve = reserve;
  return queue_call(handle, call, work);
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                         cudnnWgradMode_t mode, const int32_t lengths[],
                                         cudnnRNNDataDescriptor_t x, const void* x_data,
                                         cudnnTensorDescriptor_t h, const void* hx,
                                         cudnnRNNDataDescriptor_t y, const void* y_data,
                                         size_t weight_bytes, void* gradients, size_t work_bytes,
                                         void* work, size_t reserve_bytes, void* reserve) {
  auto call = call_of<WeightsCall>(rnn, x, gradients);
  if (!fits(rnn, lengths, x, y, h, weight_bytes, work_bytes, work) ||
      mode != CUDNN_WGRAD_MODE_ADD || reserve_bytes != call.reserve_bytes()) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  call.x_data = x_data;
  call.hx = hx;
  call.y = y_data;
  call.reserve = reserve;
  return queue_call(handle, call, work);
}

}  // extern "C"
