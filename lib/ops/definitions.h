// The definitions that ops/registry.cpp puts into one table; each stands in the file of its op.
#pragma once

#include <span>

#include "ops/op.h"

namespace dltrain {

std::span<const OpDef> elementwise_ops();  // elementwise.cpp has a table of its own

extern const OpDef kMatmulOp;
extern const OpDef kFusedElementwiseOp;
extern const OpDef kReduceOp, kBroadcastOp, kReshapeOp;
extern const OpDef kConcatOp, kSliceOp, kPadOp, kTransposeOp;
extern const OpDef kSoftmaxOp, kSoftmaxBackwardOp, kLogSoftmaxOp, kLogSoftmaxBackwardOp;
extern const OpDef kSoftmaxCrossEntropyOp, kSoftmaxCrossEntropyBackwardOp;
extern const OpDef kConv2dOp, kConv2dBackwardInputOp, kConv2dBackwardWeightOp;
extern const OpDef kMaxPool2dOp, kMaxPool2dBackwardOp;
extern const OpDef kBatchNormOp, kBatchNormBackwardOp, kBatchNormInferenceOp, kBatchNormUpdateOp;
extern const OpDef kDropoutOp;
extern const OpDef kLossSeedOp, kGradientNormOp, kSgdUpdateOp, kAdamwUpdateOp;
extern const OpDef kLowPrecisionUpdateOp;
extern const OpDef kAllReduceBeginOp, kAllReduceEndOp;

}  // namespace dltrain
