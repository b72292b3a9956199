// softmax, log_softmax and their gradients, row by row. A row is read in full before it is written,
// since the result may share its memory.
#include <algorithm>
#include <cmath>

#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

struct SoftmaxRows {
  explicit SoftmaxRows(const NaiveCall& c)
      : columns(c.inputs[0].shape[-1]),
        rows(columns == 0 ? 0 : c.inputs[0].shape.elements() / columns),
        logarithm(c.op.starts_with("log_")) {}

  int64_t columns, rows;
  bool logarithm;
};

}  // namespace

std::unique_ptr<Kernel> reference_softmax(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const SoftmaxRows s(c);
    for (int64_t r = 0; r < s.rows; ++r) {
      const T* x = c.input<T>(0) + r * s.columns;
      const double greatest = *std::max_element(x, x + s.columns);
      double sum = 0;
      for (int64_t k = 0; k < s.columns; ++k) sum += std::exp(x[k] - greatest);
      const double log_sum_exp = greatest + std::log(sum);
      for (int64_t k = 0; k < s.columns; ++k) {
        const double y = x[k] - log_sum_exp;
        c.put<T>(0, r * s.columns + k, s.logarithm ? y : std::exp(y));
      }
    }
  });
}

std::unique_ptr<Kernel> reference_softmax_backward(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const SoftmaxRows s(c);
    for (int64_t r = 0; r < s.rows; ++r) {
      const T *y = c.input<T>(0) + r * s.columns, *dy = c.input<T>(1) + r * s.columns;
      double sum = 0;
      for (int64_t k = 0; k < s.columns; ++k) sum += s.logarithm ? dy[k] : double{dy[k]} * y[k];
      for (int64_t k = 0; k < s.columns; ++k) {
        const double dx = s.logarithm ? dy[k] - std::exp(double{y[k]}) * sum : y[k] * (dy[k] - sum);
        c.put<T>(0, r * s.columns + k, dx);
      }
    }
  });
}

}  // namespace dltrain
