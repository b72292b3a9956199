// The kernels of the reference engine: one row per op.
#include <vector>

#include "base/error.h"
#include "reference/engine.h"
#include "reference/makers.h"
#include "shared/common_kernels.h"
#include "shared/fp8_matmul.h"
#include "shared/galore.h"
#include "shared/host_memory.h"
#include "shared/kernel_part.h"
#include "shared/matmul_gelu.h"
#include "shared/recurrent_parts.h"

namespace dltrain {
namespace {

constexpr KernelRow row(std::string_view op, KernelMaker make, bool accumulates) {
  return {.op = op, .variant = "naive", .make = make, .accumulates = accumulates};
}

constexpr bool kAccumulates = true;
constexpr bool kOverwrites = false;

constexpr KernelRow kTable[] = {
    row("cast", reference_cast, kAccumulates),
    row("fused_elementwise", reference_fused_elementwise, kAccumulates),
    row("reduce", reference_reduce, kAccumulates),
    row("broadcast", reference_broadcast, kAccumulates),
    row("concat", reference_concat, kAccumulates),
    row("slice", reference_slice, kAccumulates),
    row("pad", reference_pad, kAccumulates),
    row("transpose", reference_transpose, kAccumulates),
    row("matmul", reference_matmul, kAccumulates),
    row("matmul_gelu", of_parts<reference_engine, make_matmul_gelu_of_parts>, kOverwrites),
    row("matmul_gelu_backward", of_parts<reference_engine, make_matmul_gelu_backward_of_parts>,
        kOverwrites),
    row("conv2d", reference_conv2d, kAccumulates),
    row("conv2d_backward_input", reference_conv2d_backward_input, kAccumulates),
    row("conv2d_backward_weight", reference_conv2d_backward_weight, kAccumulates),
    row("max_pool2d", reference_max_pool2d, kOverwrites),
    row("max_pool2d_backward", reference_max_pool2d_backward, kAccumulates),
    row("max_pool2d_tangent", reference_max_pool2d_tangent, kOverwrites),
    row("batch_norm", reference_batch_norm, kOverwrites),
    row("batch_norm_backward", reference_batch_norm_backward, kAccumulates),
    row("batch_norm_inference", reference_batch_norm_inference, kOverwrites),
    row("batch_norm_update", reference_batch_norm_update, kOverwrites),
    row("dropout", reference_dropout, kAccumulates),
    row("layer_norm", reference_layer_norm, kOverwrites),
    row("layer_norm_backward", reference_layer_norm_backward, kAccumulates),
    row("rms_norm", reference_layer_norm, kOverwrites),
    row("rms_norm_backward", reference_layer_norm_backward, kAccumulates),
    row("group_norm", reference_group_norm, kOverwrites),
    row("group_norm_backward", reference_group_norm_backward, kAccumulates),
    row("avg_pool2d", reference_image_map, kAccumulates),
    row("avg_pool2d_backward", reference_image_map, kAccumulates),
    row("adaptive_max_pool2d", reference_adaptive_max_pool2d, kOverwrites),
    row("adaptive_max_pool2d_backward", reference_max_pool2d_backward, kAccumulates),
    row("upsample2d", reference_image_map, kAccumulates),
    row("upsample2d_backward", reference_image_map, kAccumulates),
    row("embedding", reference_embedding, kAccumulates),
    row("embedding_backward", reference_embedding_backward, kAccumulates),
    row("dropout2d", reference_dropout2d, kAccumulates),
    row("row_norms", reference_row_norms, kOverwrites),
    row("dequantize", reference_dequantize, kOverwrites),
    row("fp8_counts", reference_fp8_counts, kOverwrites),
    row("fp8_round", reference_fp8_round, kOverwrites),
    row("fp8_scale_update", reference_fp8_scale_update, kOverwrites),
    row("fp8_codes", reference_fp8_codes, kOverwrites),
    row("fp8_values", reference_fp8_values, kOverwrites),
    row("fp8_matmul", of_parts<reference_engine, make_wide_fp8_matmul_of_parts>, kAccumulates),
    row("softmax", reference_softmax, kOverwrites),
    row("softmax_backward", reference_softmax_backward, kAccumulates),
    row("log_softmax", reference_softmax, kOverwrites),
    row("log_softmax_backward", reference_softmax_backward, kAccumulates),
    row("softmax_cross_entropy", reference_softmax_cross_entropy, kOverwrites),
    row("cross_entropy_parts", reference_cross_entropy_parts, kOverwrites),
    row("softmax_cross_entropy_backward", reference_softmax_cross_entropy_backward, kAccumulates),
    row("softmax_cross_entropy_gradient", reference_softmax_cross_entropy_gradient, kOverwrites),
    row("attention", reference_attention, kOverwrites),
    row("attention_backward", reference_attention_backward, kOverwrites),
    row("cached_attention", reference_cached_attention, kOverwrites),
    row("token_positions", reference_token_positions, kOverwrites),
    row("last_token", reference_last_token, kOverwrites),
    row("slot_state", reference_slot_state, kOverwrites),
    row("slot_state_update", reference_slot_state_update, kOverwrites),
    row("recurrent", reference_recurrent, kOverwrites),
    row("recurrent_backward", reference_recurrent_backward, kOverwrites),
    row("recurrent_network", of_parts<reference_engine, make_recurrent_of_parts>, kOverwrites),
    row("recurrent_network_backward", of_parts<reference_engine, make_recurrent_backward_of_parts>,
        kOverwrites),
    row("carried_state", reference_carried_state, kOverwrites),
    row("carry_state", reference_carry_state, kAccumulates),
    row("carry_state_in_place", reference_carry_state_in_place, kOverwrites),
    row("carried_update", reference_carried_update, kOverwrites),
    row("rotary", reference_rotary, kAccumulates),
    row("sinusoidal_positions", reference_sinusoidal_positions, kAccumulates),
    row("weighted_cross_entropy", reference_weighted_cross_entropy, kOverwrites),
    row("weighted_cross_entropy_backward", reference_weighted_cross_entropy_backward, kAccumulates),
    row("elementwise_loss", reference_elementwise_loss, kOverwrites),
    row("elementwise_loss_backward", reference_elementwise_loss_backward, kAccumulates),
    row("confusion_matrix", reference_confusion_matrix, kAccumulates),
    row("source_sums", reference_source_sums, kAccumulates),
    row("top_k_correct", reference_top_k_correct, kAccumulates),
    row("regression_sums", reference_regression_sums, kAccumulates),
    row("binary_counts", reference_binary_counts, kAccumulates),
    row("top_k_routing", reference_top_k_routing, kOverwrites),
    row("top_k_routing_backward", reference_top_k_routing_backward, kAccumulates),
    row("dispatch_tokens", reference_dispatch_tokens, kAccumulates),
    row("place_rows", reference_place_rows, kOverwrites),
    row("sort_received", reference_sort_received, kOverwrites),
    row("combine_experts", reference_combine_experts, kAccumulates),
    row("combine_experts_backward_weights", reference_combine_experts_backward_weights,
        kAccumulates),
    row("grouped_matmul", reference_grouped_matmul, kAccumulates),
    row("grouped_matmul_backward_weight", reference_grouped_matmul_backward_weight, kAccumulates),
    row("router_losses", reference_router_losses, kAccumulates),
    row("router_losses_backward", reference_router_losses_backward, kAccumulates),
    row("loss_seed", reference_loss_seed, kOverwrites),
    row("gradient_norm", reference_gradient_norm, kOverwrites),
    row("clip_percentile", reference_clip_percentile, kOverwrites),
    row("running_norm", reference_running_norm, kOverwrites),
    row("ema_update", reference_ema_update, kOverwrites),
    row("random_direction", reference_random_direction, kOverwrites),
    row("galore_projection", make_galore_projection, kOverwrites),
    row("step_view", make_step_view, kOverwrites),
    row("lars_sums", reference_lars_sums, kOverwrites),
    row("lars_update", reference_lars_update, kOverwrites),
    row("lamb_moments", reference_lamb_moments, kOverwrites),
    row("lamb_update", reference_lamb_update, kOverwrites),
    row("adafactor_sums", reference_adafactor_sums, kOverwrites),
    row("adafactor_moments", reference_adafactor_moments, kOverwrites),
    row("adafactor_update", reference_adafactor_update, kOverwrites),
    row("low_precision_update", reference_low_precision_update, kOverwrites),
    row("tree_sum", reference_tree_sum, kOverwrites),
    row("sum_of_squares", reference_sum_of_squares, kOverwrites),
    row("gradient_norm_of", make_gradient_norm_of, kOverwrites),
};

std::unique_ptr<Device> open_device(int index) {
  if (index != 0) {
    fail(ExitCode::device, "the reference engine has one device, not an index {}", index);
  }
  return make_host_device("reference", "");
}

}  // namespace

const Engine& reference_engine() {
  static const std::vector<KernelRow> table =
      with_common_rows(row("", reference_elementwise, kAccumulates),
                       row("", reference_element_update, kOverwrites), kTable);
  static const Engine engine{.name = "reference",
                             .kernels = table.data(),
                             .kernel_count = table.size(),
                             .device_count = [] { return 1; },
                             .open = open_device};
  return engine;
}

}  // namespace dltrain
