// conv2d_backward_weight(dy, x): for each weight one sum over samples and output pixels.
#include "reference/call.h"
#include "reference/convolution.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

template <typename T>
struct Conv2dBackwardWeight {
  explicit Conv2dBackwardWeight(const NaiveCall& c)
      : g(c.inputs[1].shape, c.outputs[0].shape, c.inputs[0].shape, c.attributes) {}

  void run(const NaiveCall& c) const {
    int64_t element = 0;
    for (int64_t co = 0; co < g.w[0]; ++co) {
      for (int64_t kh = 0; kh < g.w[1]; ++kh) {
        for (int64_t kw = 0; kw < g.w[2]; ++kw) {
          for (int64_t ci = 0; ci < g.w[3]; ++ci) c.put<T>(0, element++, summed(c, co, kh, kw, ci));
        }
      }
    }
  }

  double summed(const NaiveCall& c, int64_t co, int64_t kh, int64_t kw, int64_t ci) const {
    const T *dy = c.input<T>(0), *x = c.input<T>(1);
    const int64_t channel = g.group_of(co) * g.in_channels() + ci;
    double sum = 0;
    for (int64_t n = 0; n < g.y[0]; ++n) {
      for (int64_t oh = 0; oh < g.y[1]; ++oh) {
        for (int64_t ow = 0; ow < g.y[2]; ++ow) {
          const int64_t h = g.input_of(0, oh, kh), v = g.input_of(1, ow, kw);
          if (!g.inside(h, v)) continue;
          sum += static_cast<double>(dy[g.y_at(n, oh, ow, co)]) * x[g.x_at(n, h, v, channel)];
        }
      }
    }
    return sum;
  }

  ConvolutionGeometry g;
};

}  // namespace

std::unique_ptr<Kernel> reference_conv2d_backward_weight(const KernelRequest& request) {
  return make_naive<Conv2dBackwardWeight>(request);
}

}  // namespace dltrain
