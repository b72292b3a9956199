// conv2d_backward_input(dy, w): each input element gathers from the windows that cover it.
#include "reference/call.h"
#include "reference/convolution.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

template <typename T>
struct Conv2dBackwardInput {
  explicit Conv2dBackwardInput(const NaiveCall& c)
      : g(c.outputs[0].shape, c.inputs[1].shape, c.inputs[0].shape, c.attributes) {}

  void run(const NaiveCall& c) const {
    int64_t element = 0;
    for (int64_t n = 0; n < g.x[0]; ++n) {
      for (int64_t h = 0; h < g.x[1]; ++h) {
        for (int64_t v = 0; v < g.x[2]; ++v) {
          for (int64_t ci = 0; ci < g.x[3]; ++ci) {
            c.put<T>(0, element++, gathered(c, n, h, v, ci));
          }
        }
      }
    }
  }

  double gathered(const NaiveCall& c, int64_t n, int64_t h, int64_t v, int64_t channel) const {
    const T *dy = c.input<T>(0), *w = c.input<T>(1);
    const int64_t group = channel / g.in_channels(), ci = channel % g.in_channels();
    double sum = 0;
    for (int64_t kh = 0; kh < g.w[1]; ++kh) {
      for (int64_t kw = 0; kw < g.w[2]; ++kw) {
        const int64_t oh = output_of(0, h, kh), ow = output_of(1, v, kw);
        if (oh < 0 || ow < 0) continue;
        for (int64_t k = 0; k < g.out_channels(); ++k) {
          const int64_t co = group * g.out_channels() + k;
          sum += static_cast<double>(dy[g.y_at(n, oh, ow, co)]) * w[g.w_at(co, kh, kw, ci)];
        }
      }
    }
    return sum;
  }

  // Returns the output whose window has the input row or column at position k; -1: none.
  int64_t output_of(int axis, int64_t input, int64_t k) const {
    const int64_t scaled = input + g.a.padding[axis] - k * g.a.dilation[axis];
    if (scaled < 0 || scaled % g.a.stride[axis] != 0) return -1;
    const int64_t o = scaled / g.a.stride[axis];
    return o < g.y[1 + axis] ? o : -1;
  }

  ConvolutionGeometry g;
};

}  // namespace

std::unique_ptr<Kernel> reference_conv2d_backward_input(const KernelRequest& request) {
  return make_naive<Conv2dBackwardInput>(request);
}

}  // namespace dltrain
