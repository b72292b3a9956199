// The kernels of the CPU engine. For each op the first row whose maker accepts the request is used.
#include "cpu/table.h"

#include "cpu/engine.h"
#include "cpu/makers.h"
#include "shared/common_kernels.h"
#include "shared/fp8_matmul.h"
#include "shared/galore.h"
#include "shared/kernel_part.h"
#include "shared/matmul_gelu.h"
#include "shared/recurrent_parts.h"
#include "shared/through_f32.h"

namespace dltrain {
namespace {

constexpr KernelRow row(std::string_view op, std::string_view variant, KernelMaker make) {
  return {.op = op, .variant = variant, .make = make};
}
// A row whose kernel can accumulate.
constexpr KernelRow adding_row(std::string_view op, std::string_view variant, KernelMaker make) {
  return {.op = op, .variant = variant, .make = make, .accumulates = true};
}

constinit const KernelRow kTable[] = {
    adding_row("matmul", "through TF32", make_through_tf32),
    row("conv2d", "through TF32", make_through_tf32),
    adding_row("conv2d_backward_input", "through TF32", make_through_tf32),
    adding_row("conv2d_backward_weight", "through TF32", make_through_tf32),
    row("grouped_matmul", "through TF32", make_through_tf32),
    adding_row("grouped_matmul_backward_weight", "through TF32", make_through_tf32),
    adding_row("identity", "f64", make_identity_f64),
    row("cast", "plain", make_cast),
    row("fused_elementwise", "simd", make_fused_elementwise),
    adding_row("reduce", "simd", make_reduce),
    row("broadcast", "plain", make_broadcast),
    row("concat", "plain", make_concat),
    row("slice", "plain", make_slice),
    row("pad", "plain", make_pad),
    row("transpose", "simd", make_transpose),
    row("matmul", "rows", make_matmul_rows),
    adding_row("matmul", "panels", make_matmul_panels),
    adding_row("matmul", "oneDNN", make_matmul_onednn),
    row("matmul_gelu", "composed", of_parts<cpu_engine, make_matmul_gelu_of_parts>),
    row("matmul_gelu_backward", "composed",
        of_parts<cpu_engine, make_matmul_gelu_backward_of_parts>),
    row("conv2d", "samples in lanes", make_conv2d_lanes),
    row("conv2d", "panels", make_conv2d_product),
    row("conv2d", "oneDNN", make_conv2d_onednn),
    row("conv2d_backward_input", "samples in lanes", make_conv2d_backward_input_lanes),
    row("conv2d_backward_input", "oneDNN", make_conv2d_backward_input_onednn),
    adding_row("conv2d_backward_weight", "samples in lanes", make_conv2d_backward_weight_lanes),
    adding_row("conv2d_backward_weight", "panels", make_conv2d_backward_weight_panels),
    adding_row("conv2d_backward_weight", "oneDNN", make_conv2d_backward_weight_onednn),
    row("max_pool2d", "simd", make_max_pool2d),
    row("max_pool2d_backward", "simd", make_max_pool2d_backward),
    row("max_pool2d_tangent", "plain", make_max_pool2d_tangent),
    row("batch_norm", "simd", make_batch_norm),
    row("batch_norm_backward", "simd", make_batch_norm_backward),
    row("batch_norm_inference", "simd", make_batch_norm_inference),
    row("batch_norm_update", "plain", make_batch_norm_update),
    row("dropout", "simd", make_dropout),
    row("layer_norm", "simd", make_layer_norm),
    row("layer_norm_backward", "simd", make_layer_norm_backward),
    row("rms_norm", "simd", make_layer_norm),
    row("rms_norm_backward", "simd", make_layer_norm_backward),
    row("group_norm", "simd", make_group_norm),
    row("group_norm_backward", "simd", make_group_norm_backward),
    row("avg_pool2d", "simd", make_image_map),
    row("avg_pool2d_backward", "simd", make_image_map),
    row("adaptive_max_pool2d", "simd", make_max_pool2d),
    row("adaptive_max_pool2d_backward", "simd", make_max_pool2d_backward),
    row("upsample2d", "simd", make_image_map),
    row("upsample2d_backward", "simd", make_image_map),
    row("embedding", "plain", make_embedding),
    adding_row("embedding_backward", "plain", make_embedding_backward),
    row("dropout2d", "plain", make_dropout2d),
    row("row_norms", "plain", make_row_norms),
    row("dequantize", "plain", make_dequantize),
    row("fp8_counts", "simd", make_fp8_counts),
    row("fp8_round", "simd", make_fp8_round),
    row("fp8_scale_update", "simple", make_fp8_scale_update),
    row("fp8_codes", "plain", make_fp8_codes),
    row("fp8_values", "plain", make_fp8_values),
    adding_row("fp8_matmul", "composed", of_parts<cpu_engine, make_fp8_matmul_of_parts>),
    row("softmax", "simd", make_softmax),
    row("softmax_backward", "simd", make_softmax),
    row("log_softmax", "simd", make_softmax),
    row("log_softmax_backward", "simd", make_softmax),
    row("softmax_cross_entropy", "simd", make_softmax_cross_entropy),
    row("cross_entropy_parts", "simd", make_cross_entropy_parts),
    row("softmax_cross_entropy_backward", "simd", make_softmax_cross_entropy_backward),
    row("softmax_cross_entropy_gradient", "simd", make_softmax_cross_entropy_gradient),
    row("attention", "blocks", make_attention),
    row("attention_backward", "blocks", make_attention_backward),
    row("cached_attention", "simd", make_cached_attention),
    row("token_positions", "plain", make_token_positions),
    row("last_token", "plain", make_last_token),
    row("slot_state", "plain", make_slot_state),
    row("slot_state_update", "plain", make_slot_state_update),
    row("recurrent", "oneDNN", make_recurrent),
    row("recurrent_backward", "oneDNN", make_recurrent_backward),
    row("recurrent_network", "oneDNN", of_parts<cpu_engine, make_recurrent_of_parts>),
    row("recurrent_network_backward", "oneDNN",
        of_parts<cpu_engine, make_recurrent_backward_of_parts>),
    row("carried_state", "plain", make_carried_state),
    adding_row("carry_state", "plain", make_carry_state),
    row("carry_state_in_place", "plain", make_carry_state_in_place),
    row("carried_update", "plain", make_carried_update),
    row("rotary", "table", make_rotary),
    row("sinusoidal_positions", "table", make_sinusoidal_positions),
    row("weighted_cross_entropy", "simd", make_weighted_cross_entropy),
    row("weighted_cross_entropy_backward", "simd", make_weighted_cross_entropy_backward),
    row("elementwise_loss", "plain", make_elementwise_loss),
    row("elementwise_loss_backward", "plain", make_elementwise_loss_backward),
    adding_row("confusion_matrix", "plain", make_confusion_matrix),
    adding_row("top_k_correct", "plain", make_top_k_correct),
    adding_row("regression_sums", "plain", make_regression_sums),
    adding_row("binary_counts", "plain", make_binary_counts),
    adding_row("source_sums", "plain", make_source_sums),
    row("top_k_routing", "plain", make_top_k_routing),
    row("top_k_routing_backward", "plain", make_top_k_routing_backward),
    row("dispatch_tokens", "plain", make_dispatch_tokens),
    row("place_rows", "plain", make_place_rows),
    row("sort_received", "plain", make_sort_received),
    row("combine_experts", "plain", make_combine_experts),
    row("combine_experts_backward_weights", "plain", make_combine_experts_backward_weights),
    row("grouped_matmul", "tiles", make_grouped_matmul),
    adding_row("grouped_matmul_backward_weight", "tiles", make_grouped_matmul_backward_weight),
    row("router_losses", "plain", make_router_losses),
    row("router_losses_backward", "plain", make_router_losses_backward),
    row("loss_seed", "plain", make_loss_seed),
    row("gradient_norm", "simd", make_gradient_norm),
    row("clip_percentile", "simple", make_clip_percentile),
    row("running_norm", "simple", make_running_norm),
    row("ema_update", "simple", make_ema_update),
    row("random_direction", "simd", make_random_direction),
    row("galore_projection", "eigen", make_galore_projection),
    row("step_view", "simple", make_step_view),
    row("lars_sums", "simd", make_lars_sums),
    row("lars_update", "simd", make_lars_update),
    row("lamb_moments", "simd", make_lamb_moments),
    row("lamb_update", "simd", make_lamb_update),
    row("adafactor_sums", "simd", make_adafactor_sums),
    row("adafactor_moments", "simd", make_adafactor_moments),
    row("adafactor_update", "simd", make_adafactor_update),
    row("low_precision_update", "simd", make_low_precision_update),
    row("tree_sum", "simple", make_tree_sum),
    row("sum_of_squares", "simd", make_sum_of_squares),
    row("gradient_norm_of", "simple", make_gradient_norm_of),
};

}  // namespace

std::span<const KernelRow> cpu_kernels() {
  static const std::vector<KernelRow> table =
      with_through_f32(with_common_rows(adding_row("", "simd", make_elementwise),
                                        row("", "simd", make_element_update), kTable),
                       make_through_f32, true);
  return table;
}

}  // namespace dltrain
