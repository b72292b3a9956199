#include "reference/convolution.h"
#include "reference/makers.h"
#include "shared/elementwise.h"

namespace dltrain {
namespace {

// Returns y[n, oh, ow, co] of x ∗ w: the sum over the window and the group's input channels.
template <typename T>
double window_sum(const NaiveCall& c, const ConvolutionGeometry& g, int64_t n, int64_t oh,
                  int64_t ow, int64_t co) {
  const T *x = c.input<T>(0), *w = c.input<T>(1);
  const int64_t first = g.group_of(co) * g.in_channels();
  double sum = 0;
  for (int64_t kh = 0; kh < g.w[1]; ++kh) {
    for (int64_t kw = 0; kw < g.w[2]; ++kw) {
      const int64_t h = g.input_of(0, oh, kh), v = g.input_of(1, ow, kw);
      if (!g.inside(h, v)) continue;
      for (int64_t ci = 0; ci < g.in_channels(); ++ci) {
        sum += static_cast<double>(x[g.x_at(n, h, v, first + ci)]) * w[g.w_at(co, kh, kw, ci)];
      }
    }
  }
  return sum;
}

}  // namespace

std::unique_ptr<Kernel> reference_conv2d(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const ConvolutionGeometry g(c.inputs[0].shape, c.inputs[1].shape, c.outputs[0].shape,
                                c.attributes);
    const ElementwiseOp activation = activation_of(c.attributes.text("activation"));
    int64_t element = 0;
    for (int64_t n = 0; n < g.y[0]; ++n) {
      for (int64_t oh = 0; oh < g.y[1]; ++oh) {
        for (int64_t ow = 0; ow < g.y[2]; ++ow) {
          for (int64_t co = 0; co < g.y[3]; ++co) {
            const double bias = c.has_input(2) ? c.input<T>(2)[co] : 0;
            const double sum = bias + window_sum<T>(c, g, n, oh, ow, co);
            c.put<T>(0, element++, elementwise(activation, sum, 0.0, 0.0, 0.0));
          }
        }
      }
    }
  });
}

}  // namespace dltrain
