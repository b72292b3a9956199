// adaptive_max_pool2d and its gradient; the backward gathers, so sums are in double.
#include <cmath>

#include "ops/image_maps.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {

std::unique_ptr<Kernel> reference_adaptive_max_pool2d(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const ImageMaps maps(pooling_maps(c.op, c.inputs[0].shape, c.attributes));
    const Shape &x = c.inputs[0].shape, &y = c.outputs[0].shape;
    for (int64_t i = 0; i < y.elements(); ++i) {
      const auto v = static_cast<size_t>(i / y[3] % y[2]),
                 h = static_cast<size_t>(i / y[3] / y[2] % y[1]);
      const int64_t image = i / y[3] / y[2] / y[1] * x[1] * x[2];
      int64_t winner = -1;
      T greatest = 0;
      for (int64_t a = maps.height.begin[h]; a < maps.height.begin[h + 1]; ++a) {
        for (int64_t b = maps.width.begin[v]; b < maps.width.begin[v + 1]; ++b) {
          const int64_t pixel = maps.height.index[static_cast<size_t>(a)] * x[2] +
                                maps.width.index[static_cast<size_t>(b)];
          const T value = c.input<T>(0)[(image + pixel) * x[3] + i % y[3]];
          if (winner >= 0 && !(value > greatest) && !std::isnan(value)) continue;
          greatest = value;
          winner = pixel;
        }
      }
      c.output<T>(0)[i] = greatest;
      c.output<int32_t>(1)[i] = static_cast<int32_t>(winner);
    }
  });
}

std::unique_ptr<Kernel> reference_adaptive_max_pool2d_backward(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Shape &x = c.outputs[0].shape, &y = c.inputs[0].shape;
    const int64_t windows = y[1] * y[2];
    for (int64_t i = 0; i < x.elements(); ++i) {
      const int64_t k = i % x[3], pixel = i / x[3] % (x[1] * x[2]), n = i / x[3] / (x[1] * x[2]);
      double sum = 0;
      for (int64_t o = 0; o < windows; ++o) {
        const int64_t at = (n * windows + o) * x[3] + k;
        if (c.input<int32_t>(1)[at] == pixel) sum += c.input<T>(0)[at];
      }
      c.put<T>(0, i, sum);
    }
  });
}

}  // namespace dltrain
