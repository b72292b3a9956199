// row_norms: one warp per short row, one block per long row, sums in double.
#include <cmath>

#include "cuda/makers.h"
#include "cuda/row_sweep.cuh"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

template <typename T, int kThreads>
__global__ void row_norms_kernel(const T* w, const T* p, T* norm, int64_t rows, int64_t columns,
                                 double scale) {
  const int64_t row = own_row<kThreads>();
  if (row >= rows) return;  // uniform over a warp
  double sum = 0;
  for (int64_t k = own_lane<kThreads>(); k < columns; k += kThreads) {
    const double value = static_cast<double>(w[row * columns + k]) +
                         scale * static_cast<double>(p[row * columns + k]);
    sum += value * value;
  }
  sum = row_sum<kThreads>(sum);
  if (own_lane<kThreads>() == 0) norm[row] = static_cast<T>(std::sqrt(sum));
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_row_norms(const KernelRequest& request) {
  const TensorSpec& w = request.inputs[0];
  return make_kernel(
      [dtype = w.dtype, rows = w.shape[0], columns = w.shape[1],
       scale = request.attributes.number("scale", 1)](const Bindings& b, Stream& stream) {
        if (rows == 0) return;
        with_floating(dtype, [&]<typename T>(T) {
          DLTRAIN_LAUNCH_ROWS(row_norms_kernel, T, rows, columns, stream.native(), b.input<T>(0),
                              b.input<T>(1), b.output<T>(0), rows, columns, scale);
        });
      });
}

}  // namespace dltrain
