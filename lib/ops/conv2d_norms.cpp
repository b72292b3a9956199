// Convolutions combined with work of the batch norm after them, created by a pass
// (passes/pair_convolutions.h) after the reverse pass; hence no gradient rules.
//
// conv2d_moments(x, w) → y, mean, variance: y = x ∗ w, and of each of its channels the mean and the
//   (biased) variance over all samples and pixels, as in batch_norm: [Cout], in the
//   accumulation dtype.
// conv2d_batch_norm(x, w, gamma, beta, mean, variance (, residual)) → y: batch_norm_inference of
//   x ∗ w with its attributes epsilon and activation. The convolution's result need not be rounded.
//
// Both have the shapes and the attributes of conv2d, without its bias and activation.
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

// Returns the spec of the convolution's result.
TensorSpec convolved(SpecSpan inputs, const Attributes& attributes) {
  return kConv2dOp.infer(inputs.first(2), attributes)[0];
}

SpecList infer_moments(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("conv2d_moments", inputs, 2, 2);
  const TensorSpec y = convolved(inputs, attributes);
  const TensorSpec channels{Shape{y.shape[3]}, accumulation_dtype(y.dtype)};
  return {y, channels, channels};
}

SpecList infer_conv2d_batch_norm(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("conv2d_batch_norm", inputs, 6, 7);
  std::vector<TensorSpec> norm{convolved(inputs, attributes)};
  norm.insert(norm.end(), inputs.begin() + 2, inputs.end());
  return kBatchNormInferenceOp.infer(norm, attributes);
}

}  // namespace

constinit const OpDef kConv2dMomentsOp{.name = "conv2d_moments",
                                       .doc = "x ∗ w, and its channels' means and variances",
                                       .infer = infer_moments,
                                       .cost = [](SpecSpan in, SpecSpan out, const Attributes& a) {
                                         return kConv2dOp.cost(in, out, a);
                                       }};
constinit const OpDef kConv2dBatchNormOp{
    .name = "conv2d_batch_norm",
    .doc = "x ∗ w, normalised by given statistics",
    .infer = infer_conv2d_batch_norm,
    .cost = [](SpecSpan in, SpecSpan out, const Attributes& a) {
      return kConv2dOp.cost(in, out, a);
    }};

}  // namespace dltrain
