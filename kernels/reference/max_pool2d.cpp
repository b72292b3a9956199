// max_pool2d and max_pool2d_backward; the backward gathers, so sums are in double.
#include <cmath>
#include <limits>

#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

struct Windows {
  Windows(const Shape& x_shape, const Shape& y_shape, const Attributes& attributes)
      : x(x_shape), y(y_shape) {
    const auto k = attributes.integers("kernel"), s = attributes.integers("stride", k),
               p = attributes.integers("padding", {0, 0});
    for (size_t axis = 0; axis < 2; ++axis) {
      kernel[axis] = k[axis];
      stride[axis] = s[axis];
      padding[axis] = p[axis];
    }
  }

  Shape x, y;
  int64_t kernel[2], stride[2], padding[2];
};

template <typename T>
struct MaxPool2d {
  explicit MaxPool2d(const NaiveCall& c) : g(c.inputs[0].shape, c.outputs[0].shape, c.attributes) {}

  void run(const NaiveCall& c) const {
    int64_t element = 0;
    for (int64_t n = 0; n < g.y[0]; ++n) {
      for (int64_t oh = 0; oh < g.y[1]; ++oh) {
        for (int64_t ow = 0; ow < g.y[2]; ++ow) {
          for (int64_t k = 0; k < g.y[3]; ++k) window(c, element++, n, oh, ow, k);
        }
      }
    }
  }

  void window(const NaiveCall& c, int64_t element, int64_t n, int64_t oh, int64_t ow,
              int64_t k) const {
    T greatest = -std::numeric_limits<T>::infinity();
    int64_t winner = -1;
    for (int64_t index = 0; index < g.kernel[0] * g.kernel[1]; ++index) {
      const int64_t h = oh * g.stride[0] - g.padding[0] + index / g.kernel[1];
      const int64_t v = ow * g.stride[1] - g.padding[1] + index % g.kernel[1];
      if (h < 0 || h >= g.x[1] || v < 0 || v >= g.x[2]) continue;
      const T value = c.input<T>(0)[((n * g.x[1] + h) * g.x[2] + v) * g.x[3] + k];
      if (winner < 0 || value > greatest || std::isnan(value)) {
        greatest = value;
        winner = index;
      }
    }
    c.output<T>(0)[element] = greatest;
    c.output<uint8_t>(1)[element] = static_cast<uint8_t>(winner);
  }

  Windows g;
};

template <typename T>
struct MaxPool2dBackward {
  explicit MaxPool2dBackward(const NaiveCall& c)
      : g(c.outputs[0].shape, c.inputs[0].shape, c.attributes) {}

  void run(const NaiveCall& c) const {
    int64_t element = 0;
    for (int64_t n = 0; n < g.x[0]; ++n) {
      for (int64_t h = 0; h < g.x[1]; ++h) {
        for (int64_t v = 0; v < g.x[2]; ++v) {
          for (int64_t k = 0; k < g.x[3]; ++k) c.put<T>(0, element++, gathered(c, n, h, v, k));
        }
      }
    }
  }

  // Returns the sum of dy over the windows whose maximum is the input element.
  double gathered(const NaiveCall& c, int64_t n, int64_t h, int64_t v, int64_t k) const {
    double sum = 0;
    for (int64_t oh = 0; oh < g.y[1]; ++oh) {
      const int64_t kh = h + g.padding[0] - oh * g.stride[0];
      if (kh < 0 || kh >= g.kernel[0]) continue;
      for (int64_t ow = 0; ow < g.y[2]; ++ow) {
        const int64_t kw = v + g.padding[1] - ow * g.stride[1];
        if (kw < 0 || kw >= g.kernel[1]) continue;
        const int64_t at = ((n * g.y[1] + oh) * g.y[2] + ow) * g.y[3] + k;
        if (c.input<uint8_t>(1)[at] == kh * g.kernel[1] + kw) sum += c.input<T>(0)[at];
      }
    }
    return sum;
  }

  Windows g;
};

}  // namespace

std::unique_ptr<Kernel> reference_max_pool2d(const KernelRequest& request) {
  return make_naive<MaxPool2d>(request);
}
std::unique_ptr<Kernel> reference_max_pool2d_backward(const KernelRequest& request) {
  return make_naive<MaxPool2dBackward>(request);
}

}  // namespace dltrain
