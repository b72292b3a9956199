// conv2d and its gradients: each is a sum of products over the same triples of elements.
#include "ops/conv2d.h"

#include "reference/call.h"
#include "reference/makers.h"
#include "shared/elementwise.h"

namespace dltrain {
namespace {

// Calls f(element of x, element of w, element of y) for every product x·w that is added to y.
template <typename F>
void each_product(const NaiveCall& c, const TensorSpec& x_spec, const TensorSpec& w_spec,
                  const TensorSpec& y_spec, const F& f) {
  const Conv2dAttributes a(c.attributes);
  const Shape &x = x_spec.shape, &w = w_spec.shape, &y = y_spec.shape;
  for (int64_t y_at = 0; y_at < y.elements(); ++y_at) {
    const int64_t co = y_at % y[3], ow = y_at / y[3] % y[2], oh = y_at / y[3] / y[2] % y[1];
    const int64_t n = y_at / y[3] / y[2] / y[1], first = co / (w[0] / a.groups) * w[3];
    for (int64_t k = 0; k < w[1] * w[2]; ++k) {
      const int64_t h = oh * a.stride[0] - a.padding[0] + k / w[2] * a.dilation[0];
      const int64_t v = ow * a.stride[1] - a.padding[1] + k % w[2] * a.dilation[1];
      if (h < 0 || h >= x[1] || v < 0 || v >= x[2]) continue;
      for (int64_t ci = 0; ci < w[3]; ++ci) {
        f(((n * x[1] + h) * x[2] + v) * x[3] + first + ci, (co * w[1] * w[2] + k) * w[3] + ci,
          y_at);
      }
    }
  }
}

}  // namespace

std::unique_ptr<Kernel> reference_conv2d(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const T *x = c.input<T>(0), *w = c.input<T>(1), *bias = c.input<T>(2);
    const ElementwiseOp activation = activation_of(c.attributes.text("activation"));
    const size_t channels = static_cast<size_t>(c.outputs[0].shape[3]);
    std::vector<double> sums = c.zeros(0);
    each_product(c, c.inputs[0], c.inputs[1], c.outputs[0], [&](int64_t i, int64_t k, int64_t o) {
      sums[static_cast<size_t>(o)] += c.factor(x[i]) * c.factor(w[k]);
    });
    for (size_t o = 0; o < sums.size(); ++o) {
      const double sum = (bias == nullptr ? 0.0 : bias[o % channels]) + sums[o];
      sums[o] = elementwise(activation, sum, 0.0, 0.0, 0.0);
    }
    c.put_all<T>(0, sums);
  });
}

std::unique_ptr<Kernel> reference_conv2d_backward_input(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const T *dy = c.input<T>(0), *w = c.input<T>(1);
    std::vector<double> dx = c.zeros(0);
    each_product(c, c.outputs[0], c.inputs[1], c.inputs[0], [&](int64_t i, int64_t k, int64_t o) {
      dx[static_cast<size_t>(i)] += c.factor(dy[o]) * c.factor(w[k]);
    });
    c.put_all<T>(0, dx);
  });
}

std::unique_ptr<Kernel> reference_conv2d_backward_weight(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const T *dy = c.input<T>(0), *x = c.input<T>(1);
    std::vector<double> dw = c.zeros(0);
    each_product(c, c.inputs[1], c.outputs[0], c.inputs[0], [&](int64_t i, int64_t k, int64_t o) {
      dw[static_cast<size_t>(k)] += c.factor(dy[o]) * c.factor(x[i]);
    });
    c.put_all<T>(0, dw);
  });
}

}  // namespace dltrain
