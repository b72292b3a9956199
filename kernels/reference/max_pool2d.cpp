// max_pool2d and adaptive_max_pool2d with their gradients: of several maxima the first wins, and a
// NaN always.
#include <cmath>

#include "reference/call.h"
#include "reference/indexing.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

struct PoolWindows {
  explicit PoolWindows(const Attributes& attributes)
      : kernel(attributes.integers("kernel")),
        stride(attributes.integers("stride", kernel)),
        padding(attributes.integers("padding", {0, 0})) {}
  // Returns the row (axis 0) or column (axis 1) at position k of the window of output o; it may be
  // in the padding.
  int64_t at(size_t axis, int64_t o, int64_t k) const {
    return o * stride[axis] - padding[axis] + k;
  }

  std::vector<int64_t> kernel, stride, padding;
};

// The greatest of the values that are offered, with a number that identifies it.
template <typename T>
struct Winner {
  void offer(T candidate, int64_t identity) {
    if (index >= 0 && !(candidate > value) && !std::isnan(candidate)) return;
    value = candidate;
    index = identity;
  }
  T value = 0;
  int64_t index = -1;
};

// Adds each dy to the pixel that won its window: pixel_of(row and column of the output, position);
// -1: none.
template <typename T, typename Position, typename F>
void scatter(const NaiveCall& c, const F& pixel_of) {
  const Shape &x = c.outputs[0].shape, &y = c.inputs[0].shape;
  std::vector<double> dx = c.zeros(0);
  for (int64_t i = 0; i < y.elements(); ++i) {
    const int64_t n = i / y[3] / y[2] / y[1];
    const int64_t pixel =
        pixel_of(i / y[3] / y[2] % y[1], i / y[3] % y[2], int64_t{c.input<Position>(1)[i]});
    if (pixel < 0) continue;
    dx[static_cast<size_t>((n * x[1] * x[2] + pixel) * x[3] + i % x[3])] += c.input<T>(0)[i];
  }
  c.put_all<T>(0, dx);
}

}  // namespace

std::unique_ptr<Kernel> reference_max_pool2d(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const PoolWindows g(c.attributes);
    const Shape &x = c.inputs[0].shape, &y = c.outputs[0].shape;
    for (int64_t i = 0; i < y.elements(); ++i) {
      Winner<T> winner;
      for (int64_t index = 0; index < g.kernel[0] * g.kernel[1]; ++index) {
        const int64_t h = g.at(0, i / y[3] / y[2] % y[1], index / g.kernel[1]);
        const int64_t v = g.at(1, i / y[3] % y[2], index % g.kernel[1]);
        if (h < 0 || h >= x[1] || v < 0 || v >= x[2]) continue;
        const int64_t n = i / y[3] / y[2] / y[1];
        winner.offer(c.input<T>(0)[((n * x[1] + h) * x[2] + v) * x[3] + i % y[3]], index);
      }
      c.output<T>(0)[i] = winner.value;
      c.output<uint8_t>(1)[i] = static_cast<uint8_t>(winner.index);
    }
  });
}

std::unique_ptr<Kernel> reference_max_pool2d_backward(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const PoolWindows g(c.attributes);
    scatter<T, uint8_t>(c, [&](int64_t oh, int64_t ow, int64_t index) {
      const Shape& x = c.outputs[0].shape;
      const int64_t h = g.at(0, oh, index / g.kernel[1]), v = g.at(1, ow, index % g.kernel[1]);
      return h < 0 || h >= x[1] || v < 0 || v >= x[2] ? -1 : h * x[2] + v;
    });
  });
}

std::unique_ptr<Kernel> reference_adaptive_max_pool2d(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const ImageMaps maps(pooling_maps(c.op, c.inputs[0].shape, c.attributes));
    const Shape &x = c.inputs[0].shape, &y = c.outputs[0].shape;
    for (int64_t i = 0; i < y.elements(); ++i) {
      const int64_t image = i / y[3] / y[2] / y[1] * x[1] * x[2];
      Winner<T> winner;
      visit(maps.height, i / y[3] / y[2] % y[1], [&](int64_t h, double) {
        visit(maps.width, i / y[3] % y[2], [&](int64_t v, double) {
          const int64_t pixel = h * x[2] + v;
          winner.offer(c.input<T>(0)[(image + pixel) * x[3] + i % y[3]], pixel);
        });
      });
      c.output<T>(0)[i] = winner.value;
      c.output<int32_t>(1)[i] = static_cast<int32_t>(winner.index);
    }
  });
}

std::unique_ptr<Kernel> reference_adaptive_max_pool2d_backward(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    scatter<T, int32_t>(c, [](int64_t, int64_t, int64_t pixel) { return pixel; });
  });
}

}  // namespace dltrain
