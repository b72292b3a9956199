// softmax and log_softmax along rows of [rows, columns] and their gradients (lib/ops/softmax.cpp
// has the formulas): one warp per short row, one block per long row. An output may be an input.
#include <cmath>

#include "cuda/makers.h"
#include "cuda/row_sweep.cuh"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct SoftmaxCall {
  DType dtype;
  int64_t rows, columns;
  bool logarithm;  // log_softmax
};

SoftmaxCall softmax_call(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  const int64_t columns = x.shape[-1];
  return {.dtype = x.dtype,
          .rows = columns == 0 ? 0 : x.shape.elements() / columns,
          .columns = columns,
          .logarithm = request.op.starts_with("log_")};
}

template <typename T, int kThreads>
__global__ void softmax_kernel(const T* x, T* y, int64_t rows, int64_t columns, bool logarithm,
                               bool packs) {
  using M = MathOf<T>;
  const int64_t row = own_row<kThreads>();
  if (row >= rows) return;  // uniform over a warp
  const T* const in[1] = {x + row * columns};
  T* const nowhere = nullptr;
  M most = -static_cast<M>(INFINITY);
  sweep_row<kThreads>(in, nowhere, columns, packs,
                      [&](int64_t, const M* v) { return most = v[0] > most ? v[0] : most; });
  most = row_max<kThreads>(most);
  M sum = 0;
  sweep_row<kThreads>(in, nowhere, columns, packs,
                      [&](int64_t, const M* v) { return sum += std::exp(v[0] - most); });
  sum = row_sum<kThreads>(sum);
  const M offset = most + std::log(sum), scale = M(1) / sum;
  sweep_row<kThreads>(in, y + row * columns, columns, packs, [&](int64_t, const M* v) {
    return logarithm ? v[0] - offset : std::exp(v[0] - most) * scale;
  });
}

template <typename T, int kThreads>
__global__ void softmax_backward_kernel(const T* y, const T* dy, T* dx, int64_t rows,
                                        int64_t columns, bool logarithm, bool packs) {
  using M = MathOf<T>;
  const int64_t row = own_row<kThreads>();
  if (row >= rows) return;
  const T* const in[2] = {y + row * columns, dy + row * columns};
  M sum = 0;
  sweep_row<kThreads>(in, static_cast<T*>(nullptr), columns, packs,
                      [&](int64_t, const M* v) { return sum += logarithm ? v[1] : v[1] * v[0]; });
  sum = row_sum<kThreads>(sum);
  sweep_row<kThreads>(in, dx + row * columns, columns, packs, [&](int64_t, const M* v) {
    return logarithm ? v[1] - std::exp(v[0]) * sum : v[0] * (v[1] - sum);
  });
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_softmax(const KernelRequest& request) {
  return make_kernel([c = softmax_call(request)](const Bindings& b, Stream& stream) {
    if (c.rows * c.columns == 0) return;
    with_floating(c.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH_ROWS(softmax_kernel, T, c.rows, c.columns, stream.native(), b.input<T>(0),
                          b.output<T>(0), c.rows, c.columns, c.logarithm,
                          rows_in_packs<T>(c.columns, {b.inputs[0], b.outputs[0]}));
    });
  });
}

std::unique_ptr<Kernel> make_cuda_softmax_backward(const KernelRequest& request) {
  return make_kernel([c = softmax_call(request)](const Bindings& b, Stream& stream) {
    if (c.rows * c.columns == 0) return;
    with_floating(c.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH_ROWS(softmax_backward_kernel, T, c.rows, c.columns, stream.native(),
                          b.input<T>(0), b.input<T>(1), b.output<T>(0), c.rows, c.columns,
                          c.logarithm,
                          rows_in_packs<T>(c.columns, {b.inputs[0], b.inputs[1], b.outputs[0]}));
    });
  });
}

}  // namespace dltrain
