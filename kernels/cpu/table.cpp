// The kernels of the CPU engine. For each op the first row whose maker takes the request wins.
#include "cpu/table.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "cpu/makers.h"
#include "shared/common_kernels.h"

namespace dltrain {
namespace {

constexpr KernelRow elementwise_row(std::string_view op) {
  return {.op = op, .variant = "simd", .make = make_elementwise, .accumulates = true};
}

constinit const KernelRow kTable[] = {
    elementwise_row("relu"),
    elementwise_row("gelu"),
    elementwise_row("gelu_tanh"),
    elementwise_row("silu"),
    elementwise_row("tanh"),
    elementwise_row("sigmoid"),
    elementwise_row("exp"),
    elementwise_row("log"),
    elementwise_row("sqrt"),
    elementwise_row("square"),
    elementwise_row("affine"),
    elementwise_row("identity"),
    elementwise_row("leaky_relu"),
    elementwise_row("elu"),
    elementwise_row("selu"),
    elementwise_row("softplus"),
    elementwise_row("mish"),
    elementwise_row("hardswish"),
    elementwise_row("hardsigmoid"),
    elementwise_row("hardtanh"),
    elementwise_row("softsign"),
    elementwise_row("quick_gelu"),
    {.op = "identity", .variant = "f64", .make = make_identity_f64, .accumulates = true},
    elementwise_row("relu_backward"),
    elementwise_row("gelu_backward"),
    elementwise_row("gelu_tanh_backward"),
    elementwise_row("silu_backward"),
    elementwise_row("tanh_backward"),
    elementwise_row("sigmoid_backward"),
    elementwise_row("leaky_relu_backward"),
    elementwise_row("elu_backward"),
    elementwise_row("selu_backward"),
    elementwise_row("softplus_backward"),
    elementwise_row("mish_backward"),
    elementwise_row("hardswish_backward"),
    elementwise_row("hardsigmoid_backward"),
    elementwise_row("hardtanh_backward"),
    elementwise_row("softsign_backward"),
    elementwise_row("quick_gelu_backward"),
    elementwise_row("add"),
    elementwise_row("sub"),
    elementwise_row("mul"),
    elementwise_row("div"),
    {.op = "cast", .variant = "plain", .make = make_cast},
    {.op = "fused_elementwise", .variant = "simd", .make = make_fused_elementwise},
    {.op = "reduce", .variant = "simd", .make = make_reduce, .accumulates = true},
    {.op = "broadcast", .variant = "plain", .make = make_broadcast},
    {.op = "reshape", .variant = "no copy", .make = make_reshape},
    {.op = "concat", .variant = "plain", .make = make_concat},
    {.op = "slice", .variant = "plain", .make = make_slice},
    {.op = "pad", .variant = "plain", .make = make_pad},
    {.op = "transpose", .variant = "simd", .make = make_transpose},
    {.op = "matmul", .variant = "panels", .make = make_matmul_panels, .accumulates = true},
    {.op = "matmul", .variant = "oneDNN", .make = make_matmul_onednn, .accumulates = true},
    {.op = "conv2d", .variant = "samples in lanes", .make = make_conv2d_lanes},
    {.op = "conv2d", .variant = "oneDNN", .make = make_conv2d_onednn},
    {.op = "conv2d_backward_input",
     .variant = "samples in lanes",
     .make = make_conv2d_backward_input_lanes},
    {.op = "conv2d_backward_input", .variant = "oneDNN", .make = make_conv2d_backward_input_onednn},
    {.op = "conv2d_backward_weight",
     .variant = "samples in lanes",
     .make = make_conv2d_backward_weight_lanes,
     .accumulates = true},
    {.op = "conv2d_backward_weight",
     .variant = "panels",
     .make = make_conv2d_backward_weight_panels,
     .accumulates = true},
    {.op = "conv2d_backward_weight",
     .variant = "oneDNN",
     .make = make_conv2d_backward_weight_onednn,
     .accumulates = true},
    {.op = "max_pool2d", .variant = "simd", .make = make_max_pool2d},
    {.op = "max_pool2d_backward", .variant = "simd", .make = make_max_pool2d_backward},
    {.op = "batch_norm", .variant = "simd", .make = make_batch_norm},
    {.op = "batch_norm_backward", .variant = "simd", .make = make_batch_norm_backward},
    {.op = "batch_norm_inference", .variant = "simd", .make = make_batch_norm_inference},
    {.op = "batch_norm_update", .variant = "plain", .make = make_batch_norm_update},
    {.op = "dropout", .variant = "simd", .make = make_dropout},
    {.op = "layer_norm", .variant = "simd", .make = make_layer_norm},
    {.op = "layer_norm_backward", .variant = "simd", .make = make_layer_norm_backward},
    {.op = "rms_norm", .variant = "simd", .make = make_layer_norm},
    {.op = "rms_norm_backward", .variant = "simd", .make = make_layer_norm_backward},
    {.op = "group_norm", .variant = "simd", .make = make_group_norm},
    {.op = "group_norm_backward", .variant = "simd", .make = make_group_norm_backward},
    {.op = "avg_pool2d", .variant = "simd", .make = make_image_map},
    {.op = "avg_pool2d_backward", .variant = "simd", .make = make_image_map},
    {.op = "adaptive_max_pool2d", .variant = "simd", .make = make_adaptive_max_pool2d},
    {.op = "adaptive_max_pool2d_backward",
     .variant = "simd",
     .make = make_adaptive_max_pool2d_backward},
    {.op = "upsample2d", .variant = "simd", .make = make_image_map},
    {.op = "upsample2d_backward", .variant = "simd", .make = make_image_map},
    {.op = "embedding", .variant = "plain", .make = make_embedding},
    {.op = "embedding_backward",
     .variant = "plain",
     .make = make_embedding_backward,
     .accumulates = true},
    {.op = "dropout2d", .variant = "plain", .make = make_dropout2d},
    {.op = "softmax", .variant = "simd", .make = make_softmax},
    {.op = "softmax_backward", .variant = "simd", .make = make_softmax},
    {.op = "log_softmax", .variant = "simd", .make = make_softmax},
    {.op = "log_softmax_backward", .variant = "simd", .make = make_softmax},
    {.op = "softmax_cross_entropy", .variant = "simd", .make = make_softmax_cross_entropy},
    {.op = "softmax_cross_entropy_backward",
     .variant = "simd",
     .make = make_softmax_cross_entropy_backward},
    {.op = "attention", .variant = "blocks", .make = make_attention},
    {.op = "attention_backward", .variant = "blocks", .make = make_attention_backward},
    {.op = "recurrent", .variant = "oneDNN", .make = make_recurrent},
    {.op = "recurrent_backward", .variant = "oneDNN", .make = make_recurrent_backward},
    {.op = "rotary", .variant = "table", .make = make_rotary},
    {.op = "sinusoidal_positions", .variant = "table", .make = make_sinusoidal_positions},
    {.op = "weighted_cross_entropy", .variant = "simd", .make = make_weighted_cross_entropy},
    {.op = "weighted_cross_entropy_backward",
     .variant = "simd",
     .make = make_weighted_cross_entropy_backward},
    {.op = "elementwise_loss", .variant = "plain", .make = make_elementwise_loss},
    {.op = "elementwise_loss_backward", .variant = "plain", .make = make_elementwise_loss_backward},
    {.op = "confusion_matrix",
     .variant = "plain",
     .make = make_confusion_matrix,
     .accumulates = true},
    {.op = "top_k_correct", .variant = "plain", .make = make_top_k_correct, .accumulates = true},
    {.op = "regression_sums",
     .variant = "plain",
     .make = make_regression_sums,
     .accumulates = true},
    {.op = "binary_counts", .variant = "plain", .make = make_binary_counts, .accumulates = true},
    {.op = "loss_seed", .variant = "plain", .make = make_loss_seed},
    {.op = "gradient_norm", .variant = "simd", .make = make_gradient_norm},
    {.op = "clip_percentile", .variant = "simple", .make = make_clip_percentile},
    {.op = "ema_update", .variant = "simple", .make = make_ema_update},
    {.op = "sgd_update", .variant = "simd", .make = make_element_update},
    {.op = "adam_update", .variant = "simd", .make = make_element_update},
    {.op = "adamw_update", .variant = "simd", .make = make_element_update},
    {.op = "adagrad_update", .variant = "simd", .make = make_element_update},
    {.op = "rmsprop_update", .variant = "simd", .make = make_element_update},
    {.op = "lion_update", .variant = "simd", .make = make_element_update},
    {.op = "lars_update", .variant = "simd", .make = make_lars_update},
    {.op = "lamb_update", .variant = "simd", .make = make_lamb_update},
    {.op = "adafactor_update", .variant = "simd", .make = make_adafactor_update},
    {.op = "low_precision_update", .variant = "simd", .make = make_low_precision_update},
    {.op = "all_reduce_begin", .variant = "collectives", .make = make_all_reduce_begin},
    {.op = "all_reduce_end", .variant = "collectives", .make = make_all_reduce_end},
};

// The table, and after it for every op that it has the way through f32.
std::vector<KernelRow> with_fallbacks() {
  std::vector<KernelRow> rows(std::begin(kTable), std::end(kTable));
  for (const KernelRow& row : kTable) {
    const bool known = std::any_of(std::begin(kTable), &row,
                                   [&](const KernelRow& other) { return other.op == row.op; });
    if (known) continue;
    rows.push_back(
        {.op = row.op, .variant = "through f32", .make = make_through_f32, .accumulates = true});
  }
  return rows;
}

}  // namespace

std::span<const KernelRow> cpu_kernels() {
  static const std::vector<KernelRow> table = with_fallbacks();
  return table;
}

}  // namespace dltrain
