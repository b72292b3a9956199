// conv2d_moments, in two passes over its result, and conv2d_batch_norm.
#include <cmath>

#include "reference/convolution.h"
#include "reference/makers.h"

namespace dltrain {

KernelPointer reference_conv2d_moments(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const ConvolutionGeometry g(c.inputs[0].shape, c.inputs[1].shape, c.outputs[0].shape,
                                c.attributes);
    for_each_sum<T>(c, g, [&](int64_t element, int64_t, double sum) { c.put<T>(0, element, sum); });
    const T* y = c.output<T>(0);
    const int64_t channels = g.y[3], elements = g.y.elements();
    const auto count = static_cast<double>(elements / channels);
    for (int64_t k = 0; k < channels; ++k) {
      double mean = 0, variance = 0;
      for (int64_t i = k; i < elements; i += channels) mean += y[i] / count;
      for (int64_t i = k; i < elements; i += channels) variance += std::pow(y[i] - mean, 2) / count;
      c.put<T>(1, k, mean);
      c.put<T>(2, k, variance);
    }
  });
}

KernelPointer reference_conv2d_batch_norm(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const ConvolutionGeometry g(c.inputs[0].shape, c.inputs[1].shape, c.outputs[0].shape,
                                c.attributes);
    const double epsilon = c.attributes.number("epsilon", 1e-5);
    const bool relu = c.attributes.text("activation") == "relu";
    const T *gamma = c.input<T>(2), *beta = c.input<T>(3);
    const T *mean = c.input<T>(4), *variance = c.input<T>(5);
    for_each_sum<T>(c, g, [&](int64_t element, int64_t k, double sum) {
      const double scale = gamma[k] / std::sqrt(variance[k] + epsilon);
      double y = (sum - mean[k]) * scale + beta[k];
      if (c.has_input(6)) y += c.input<T>(6)[element];
      c.put<T>(0, element, relu && y < 0 ? 0 : y);
    });
  });
}

}  // namespace dltrain
