// The definitions that ops/registry.cpp collects in one table; each is in the file of its op.
#pragma once

#include <span>

#include "ops/op.h"

namespace dltrain {

// Tables of their own.
std::span<const OpDef> elementwise_ops();
std::span<const OpDef> placement_ops();  // no part of all_ops()

extern const OpDef kMatmulOp;
extern const OpDef kFusedElementwiseOp;
extern const OpDef kReduceOp, kBroadcastOp, kReshapeOp;
extern const OpDef kConcatOp, kSliceOp, kPadOp, kTransposeOp;
extern const OpDef kSoftmaxOp, kSoftmaxBackwardOp, kLogSoftmaxOp, kLogSoftmaxBackwardOp;
extern const OpDef kSoftmaxCrossEntropyOp, kSoftmaxCrossEntropyBackwardOp;
extern const OpDef kWeightedCrossEntropyOp, kWeightedCrossEntropyBackwardOp;
extern const OpDef kElementwiseLossOp, kElementwiseLossBackwardOp;
extern const OpDef kConfusionMatrixOp, kTopKCorrectOp, kRegressionSumsOp, kBinaryCountsOp;
extern const OpDef kConv2dOp, kConv2dBackwardInputOp, kConv2dBackwardWeightOp;
extern const OpDef kMaxPool2dOp, kMaxPool2dBackwardOp;
extern const OpDef kBatchNormOp, kBatchNormBackwardOp, kBatchNormInferenceOp, kBatchNormUpdateOp;
extern const OpDef kDropoutOp, kDropout2dOp;
extern const OpDef kAttentionOp, kAttentionBackwardOp;
extern const OpDef kCachedAttentionOp;
extern const OpDef kTokenPositionsOp, kLastTokenOp, kSlotStateOp, kSlotStateUpdateOp;
extern const OpDef kRecurrentOp, kRecurrentBackwardOp;
extern const OpDef kRecurrentNetworkOp, kRecurrentNetworkBackwardOp;
extern const OpDef kCarriedStateOp, kCarryStateOp, kCarryStateInPlaceOp, kCarriedUpdateOp;
extern const OpDef kRotaryOp, kSinusoidalPositionsOp;
extern const OpDef kLayerNormOp, kLayerNormBackwardOp, kRmsNormOp, kRmsNormBackwardOp;
extern const OpDef kGroupNormOp, kGroupNormBackwardOp;
extern const OpDef kAvgPool2dOp, kAvgPool2dBackwardOp;
extern const OpDef kAdaptiveMaxPool2dOp, kAdaptiveMaxPool2dBackwardOp;
extern const OpDef kUpsample2dOp, kUpsample2dBackwardOp;
extern const OpDef kEmbeddingOp, kEmbeddingBackwardOp;
extern const OpDef kLossSeedOp, kGradientNormOp, kClipPercentileOp, kEmaUpdateOp;
extern const OpDef kSgdUpdateOp, kAdamUpdateOp, kAdamwUpdateOp, kAdagradUpdateOp, kRmspropUpdateOp,
    kLionUpdateOp, kLarsUpdateOp, kLambUpdateOp, kAdafactorUpdateOp;
extern const OpDef kLowPrecisionUpdateOp;
extern const OpDef kTreeSumOp;
extern const OpDef kAllReduceBeginOp, kAllReduceEndOp;
extern const OpDef kReduceScatterBeginOp, kReduceScatterEndOp, kAllGatherBeginOp, kAllGatherEndOp;
extern const OpDef kSumOfSquaresOp, kGradientNormOfOp;

}  // namespace dltrain
