// conv2d.
#include "reference/arithmetic.h"
#include "reference/convolution.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

template <typename T>
struct Conv2d {
  explicit Conv2d(const NaiveCall& c)
      : g(c.inputs[0].shape, c.inputs[1].shape, c.outputs[0].shape, c.attributes),
        activation(reference_activation(c.attributes.text("activation"))) {}

  void run(const NaiveCall& c) const {
    for_each_sum<T>(c, g, [&](int64_t element, int64_t channel, double sum) {
      const double bias = c.has_input(2) ? c.input<T>(2)[channel] : 0;
      c.put<T>(0, element, activation(bias + sum));
    });
  }

  ConvolutionGeometry g;
  UnaryFunction activation;
};

}  // namespace

KernelPointer reference_conv2d(const KernelRequest& request) {
  return make_naive<Conv2d>(request);
}

}  // namespace dltrain
