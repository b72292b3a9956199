// The table of ops. A new op needs its own file, a row here, a kernel per backend, and a case in
// tests/ops/cases.cpp.
#include <algorithm>
#include <vector>

#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

std::vector<OpDef> make_table() {
  std::vector<OpDef> table(elementwise_ops().begin(), elementwise_ops().end());
  for (const OpDef* op : {&kFusedElementwiseOp,
                          &kReduceOp,
                          &kBroadcastOp,
                          &kReshapeOp,
                          &kConcatOp,
                          &kSliceOp,
                          &kPadOp,
                          &kTransposeOp,
                          &kMatmulOp,
                          &kConv2dOp,
                          &kConv2dBackwardInputOp,
                          &kConv2dBackwardWeightOp,
                          &kMaxPool2dOp,
                          &kMaxPool2dBackwardOp,
                          &kBatchNormOp,
                          &kBatchNormBackwardOp,
                          &kBatchNormInferenceOp,
                          &kBatchNormUpdateOp,
                          &kDropoutOp,
                          &kAttentionOp,
                          &kAttentionBackwardOp,
                          &kCachedAttentionOp,
                          &kTokenPositionsOp,
                          &kLastTokenOp,
                          &kSlotStateOp,
                          &kSlotStateUpdateOp,
                          &kRecurrentOp,
                          &kRecurrentBackwardOp,
                          &kRecurrentNetworkOp,
                          &kRecurrentNetworkBackwardOp,
                          &kCarriedStateOp,
                          &kCarryStateOp,
                          &kCarryStateInPlaceOp,
                          &kCarriedUpdateOp,
                          &kRotaryOp,
                          &kSinusoidalPositionsOp,
                          &kLayerNormOp,
                          &kLayerNormBackwardOp,
                          &kRmsNormOp,
                          &kRmsNormBackwardOp,
                          &kGroupNormOp,
                          &kGroupNormBackwardOp,
                          &kAvgPool2dOp,
                          &kAvgPool2dBackwardOp,
                          &kAdaptiveMaxPool2dOp,
                          &kAdaptiveMaxPool2dBackwardOp,
                          &kUpsample2dOp,
                          &kUpsample2dBackwardOp,
                          &kEmbeddingOp,
                          &kEmbeddingBackwardOp,
                          &kDropout2dOp,
                          &kSoftmaxOp,
                          &kSoftmaxBackwardOp,
                          &kLogSoftmaxOp,
                          &kLogSoftmaxBackwardOp,
                          &kSoftmaxCrossEntropyOp,
                          &kSoftmaxCrossEntropyBackwardOp,
                          &kWeightedCrossEntropyOp,
                          &kWeightedCrossEntropyBackwardOp,
                          &kElementwiseLossOp,
                          &kElementwiseLossBackwardOp,
                          &kConfusionMatrixOp,
                          &kTopKCorrectOp,
                          &kRegressionSumsOp,
                          &kBinaryCountsOp,
                          &kLossSeedOp,
                          &kGradientNormOp,
                          &kClipPercentileOp,
                          &kEmaUpdateOp,
                          &kSgdUpdateOp,
                          &kAdamUpdateOp,
                          &kAdamwUpdateOp,
                          &kAdagradUpdateOp,
                          &kRmspropUpdateOp,
                          &kLionUpdateOp,
                          &kLarsUpdateOp,
                          &kLambUpdateOp,
                          &kAdafactorUpdateOp,
                          &kLowPrecisionUpdateOp,
                          &kTreeSumOp,
                          &kAllReduceBeginOp,
                          &kAllReduceEndOp,
                          &kReduceScatterBeginOp,
                          &kReduceScatterEndOp,
                          &kAllGatherBeginOp,
                          &kAllGatherEndOp,
                          &kSumOfSquaresOp,
                          &kGradientNormOfOp}) {
    table.push_back(*op);
  }
  return table;
}

}  // namespace

std::span<const OpDef> all_ops() {
  static const std::vector<OpDef> table = make_table();
  return table;
}

const OpDef* find_op(std::string_view name) {
  for (const std::span<const OpDef> ops : {all_ops(), placement_ops()}) {
    const auto found = std::ranges::find(ops, name, &OpDef::name);
    if (found != ops.end()) return &*found;
  }
  return nullptr;
}

Cost op_cost(const OpDef& op, SpecSpan inputs, SpecSpan outputs, const Attributes& attributes) {
  if (op.cost != nullptr) return op.cost(inputs, outputs, attributes);
  return {0, bytes_moved(inputs, outputs)};
}

}  // namespace dltrain
