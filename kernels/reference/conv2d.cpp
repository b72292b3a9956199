#include "reference/arithmetic.h"
#include "reference/convolution.h"
#include "reference/makers.h"

namespace dltrain {

KernelPointer reference_conv2d(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const ConvolutionGeometry g(c.inputs[0].shape, c.inputs[1].shape, c.outputs[0].shape,
                                c.attributes);
    const UnaryFunction activation(reference_activation(c.attributes.text("activation")));
    for_each_sum<T>(c, g, [&](int64_t element, int64_t channel, double sum) {
      const double bias = c.has_input(2) ? c.input<T>(2)[channel] : 0;
      c.put<T>(0, element, activation(bias + sum));
    });
  });
}

}  // namespace dltrain
