// max_pool2d and adaptive_max_pool2d with their gradients and tangents: of several maxima the first
// wins, and a NaN always.
#include <cmath>
#include <optional>

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

// The elements of x that won the windows of y, by their positions: inputs[1].
class Winners {
 public:
  Winners(const NaiveCall& c, Shape x, Shape y) : c_(c), x_(x), y_(y) {
    if (!c.attributes.has("output_size")) windows_.emplace(c.attributes);
  }
  // Returns the index in x; -1: none.
  int64_t operator()(int64_t i) const {
    const int64_t pixel = windows_ ? in_window(i) : int64_t{c_.input<int32_t>(1)[i]};
    const int64_t n = i / y_[3] / y_[2] / y_[1];
    return pixel < 0 ? -1 : (n * x_[1] * x_[2] + pixel) * x_[3] + i % x_[3];
  }

 private:
  int64_t in_window(int64_t i) const {
    const int64_t index = c_.input<uint8_t>(1)[i], width = windows_->kernel[1];
    const int64_t h = windows_->at(0, i / y_[3] / y_[2] % y_[1], index / width);
    const int64_t v = windows_->at(1, i / y_[3] % y_[2], index % width);
    return h < 0 || h >= x_[1] || v < 0 || v >= x_[2] ? -1 : h * x_[2] + v;
  }

  const NaiveCall& c_;
  Shape x_, y_;
  std::optional<PoolWindows> windows_;
};

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

// Adds each dy to the element that won its window.
std::unique_ptr<Kernel> reference_max_pool2d_backward(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Winners winner(c, c.outputs[0].shape, c.inputs[0].shape);
    std::vector<double> dx = c.zeros(0);
    for (int64_t i = 0; i < c.inputs[0].shape.elements(); ++i) {
      const int64_t from = winner(i);
      if (from >= 0) dx[static_cast<size_t>(from)] += c.input<T>(0)[i];
    }
    c.put_all<T>(0, dx);
  });
}

std::unique_ptr<Kernel> reference_max_pool2d_tangent(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Winners winner(c, c.inputs[0].shape, c.outputs[0].shape);
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) {
      const int64_t from = winner(i);
      c.output<T>(0)[i] = from < 0 ? T{} : c.input<T>(0)[from];
    }
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

}  // namespace dltrain
