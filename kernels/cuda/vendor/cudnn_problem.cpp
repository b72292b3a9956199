#include "cuda/vendor/cudnn_problem.h"

#include <fmt/format.h>

#include "ops/conv2d.h"

namespace dltrain {

ConvolutionProblem read_convolution(const KernelRequest& request, ConvolutionPass pass,
                                    const Shape& x, const Shape& w, const Shape& y) {
  const Conv2dAttributes attributes(request.attributes);
  ConvolutionProblem p{.pass = pass,
                       .dtype = request.inputs[0].dtype,
                       .samples = x[0],
                       .in_channels = x[3],
                       .out_channels = y[3],
                       .groups = attributes.groups};
  for (int i = 0; i < 2; ++i) {
    p.in[i] = x[i + 1];
    p.out[i] = y[i + 1];
    p.kernel[i] = w[i + 1];
    p.stride[i] = attributes.stride[i];
    p.padding[i] = attributes.padding[i];
    p.dilation[i] = attributes.dilation[i];
  }
  return p;
}

std::string describe(const ConvolutionProblem& p) {
  const char* pass = p.pass == ConvolutionPass::forward ? "forward"
                     : p.pass == ConvolutionPass::input ? "input"
                                                        : "weight";
  return fmt::format(
      "convolution {} {}, {} of {}x{}x{} to {}x{}x{}, kernel {}x{}, groups {}, stride {}x{}, "
      "padding "
      "{}x{}, dilation {}x{}",
      pass, dtype_name(p.dtype), p.samples, p.in[0], p.in[1], p.in_channels, p.out[0], p.out[1],
      p.out_channels, p.kernel[0], p.kernel[1], p.groups, p.stride[0], p.stride[1], p.padding[0],
      p.padding[1], p.dilation[0], p.dilation[1]);
}

}  // namespace dltrain
