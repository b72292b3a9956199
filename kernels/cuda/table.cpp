// The engine's own kernels. None has run on a GPU yet, so every row is unproven: they are compiled
// for sm_80 and sm_90 and checked on the CPU under tests/cuda_emulation.
#include "cuda/makers.h"
#include "cuda/tables.h"
#include "shared/common_kernels.h"
#include "shared/through_f32.h"

namespace dltrain {
namespace {

constexpr bool kAccumulates = true, kOverwrites = false, kUnproven = false;

constinit const KernelRow kRows[] = {
    {"cast", "own", make_cuda_cast, kOverwrites, kUnproven},
    {"fused_elementwise", "interpreter", make_cuda_fused, kOverwrites, kUnproven},
    {"broadcast", "own", make_cuda_broadcast, kAccumulates, kUnproven},
    {"reduce", "own", make_cuda_reduce, kAccumulates, kUnproven},
    {"matmul", "plain", make_cuda_plain_matmul, kAccumulates, kUnproven},
    {"conv2d", "plain", make_cuda_plain_conv2d, kOverwrites, kUnproven},
    {"conv2d_backward_input", "plain", make_cuda_plain_conv2d_input, kAccumulates, kUnproven},
    {"conv2d_backward_weight", "plain", make_cuda_plain_conv2d_weight, kAccumulates, kUnproven},
    {"max_pool2d", "own", make_cuda_max_pool2d, kOverwrites, kUnproven},
    {"max_pool2d_backward", "own", make_cuda_max_pool2d_backward, kOverwrites, kUnproven},
    {"batch_norm", "own", make_cuda_batch_norm, kOverwrites, kUnproven},
    {"batch_norm_backward", "own", make_cuda_batch_norm_backward, kOverwrites, kUnproven},
    {"batch_norm_inference", "own", make_cuda_batch_norm_inference, kOverwrites, kUnproven},
    {"batch_norm_update", "own", make_cuda_batch_norm_update, kOverwrites, kUnproven},
    {"dropout", "own", make_cuda_dropout, kOverwrites, kUnproven},
    {"dropout2d", "own", make_cuda_dropout2d, kOverwrites, kUnproven},
    {"slice", "own", make_cuda_slice, kOverwrites, kUnproven},
    {"pad", "own", make_cuda_pad, kOverwrites, kUnproven},
    {"concat", "own", make_cuda_concat, kOverwrites, kUnproven},
    {"transpose", "own", make_cuda_transpose, kOverwrites, kUnproven},
    {"layer_norm", "own", make_cuda_row_norm, kOverwrites, kUnproven},
    {"layer_norm_backward", "own", make_cuda_row_norm_backward, kOverwrites, kUnproven},
    {"rms_norm", "own", make_cuda_row_norm, kOverwrites, kUnproven},
    {"rms_norm_backward", "own", make_cuda_row_norm_backward, kOverwrites, kUnproven},
    {"group_norm", "own", make_cuda_group_norm, kOverwrites, kUnproven},
    {"group_norm_backward", "own", make_cuda_group_norm_backward, kOverwrites, kUnproven},
    {"avg_pool2d", "own", make_cuda_image_map, kOverwrites, kUnproven},
    {"avg_pool2d_backward", "own", make_cuda_image_map, kOverwrites, kUnproven},
    {"upsample2d", "own", make_cuda_image_map, kOverwrites, kUnproven},
    {"upsample2d_backward", "own", make_cuda_image_map, kOverwrites, kUnproven},
    {"adaptive_max_pool2d", "own", make_cuda_adaptive_max_pool2d, kOverwrites, kUnproven},
    {"adaptive_max_pool2d_backward", "own", make_cuda_adaptive_max_pool2d_backward, kOverwrites,
     kUnproven},
    {"softmax", "own", make_cuda_softmax, kOverwrites, kUnproven},
    {"softmax_backward", "own", make_cuda_softmax_backward, kOverwrites, kUnproven},
    {"log_softmax", "own", make_cuda_softmax, kOverwrites, kUnproven},
    {"log_softmax_backward", "own", make_cuda_softmax_backward, kOverwrites, kUnproven},
    {"embedding", "own", make_cuda_embedding, kOverwrites, kUnproven},
    {"embedding_backward", "own", make_cuda_embedding_backward, kAccumulates, kUnproven},
    {"rotary", "own", make_cuda_rotary, kOverwrites, kUnproven},
    {"sinusoidal_positions", "own", make_cuda_sinusoidal_positions, kOverwrites, kUnproven},
    {"attention", "own", make_cuda_attention, kOverwrites, kUnproven},
    {"attention_backward", "own", make_cuda_attention_backward, kOverwrites, kUnproven},
    {"recurrent", "composed", make_cuda_recurrent, kOverwrites, kUnproven},
    {"recurrent_backward", "composed", make_cuda_recurrent_backward, kOverwrites, kUnproven},
    {"recurrent_network", "composed", make_cuda_recurrent_network, kOverwrites, kUnproven},
    {"recurrent_network_backward", "composed", make_cuda_recurrent_network_backward, kOverwrites,
     kUnproven},
    {"carried_state", "own", make_cuda_carried_state, kOverwrites, kUnproven},
    {"carry_state", "own", make_cuda_carry_state, kOverwrites, kUnproven},
    {"carry_state_in_place", "own", make_cuda_carry_state_in_place, kOverwrites, kUnproven},
    {"carried_update", "own", make_cuda_carried_update, kOverwrites, kUnproven},
    {"cached_attention", "own", make_cuda_cached_attention, kOverwrites, kUnproven},
    {"token_positions", "own", make_cuda_token_positions, kOverwrites, kUnproven},
    {"last_token", "own", make_cuda_last_token, kOverwrites, kUnproven},
    {"slot_state", "own", make_cuda_slot_state, kOverwrites, kUnproven},
    {"slot_state_update", "own", make_cuda_slot_state_update, kOverwrites, kUnproven},
    {"softmax_cross_entropy", "own", make_cuda_cross_entropy, kOverwrites, kUnproven},
    {"cross_entropy_parts", "own", make_cuda_cross_entropy_parts, kOverwrites, kUnproven},
    {"softmax_cross_entropy_backward", "own", make_cuda_cross_entropy_backward, kOverwrites,
     kUnproven},
    {"weighted_cross_entropy", "own", make_cuda_weighted_cross_entropy, kOverwrites, kUnproven},
    {"weighted_cross_entropy_backward", "own", make_cuda_weighted_cross_entropy_backward,
     kOverwrites, kUnproven},
    {"elementwise_loss", "own", make_cuda_elementwise_loss, kOverwrites, kUnproven},
    {"elementwise_loss_backward", "own", make_cuda_elementwise_loss_backward, kOverwrites,
     kUnproven},
    {"confusion_matrix", "own", make_cuda_metric_sums, kAccumulates, kUnproven},
    {"top_k_correct", "own", make_cuda_metric_sums, kAccumulates, kUnproven},
    {"regression_sums", "own", make_cuda_metric_sums, kAccumulates, kUnproven},
    {"binary_counts", "own", make_cuda_metric_sums, kAccumulates, kUnproven},
    {"loss_seed", "own", make_cuda_loss_seed, kOverwrites, kUnproven},
    {"gradient_norm", "own", make_cuda_gradient_norm, kOverwrites, kUnproven},
    {"lars_sums", "own", make_cuda_lars_sums, kOverwrites, kUnproven},
    {"lars_update", "own", make_cuda_lars_update, kOverwrites, kUnproven},
    {"lamb_moments", "own", make_cuda_lamb_moments, kOverwrites, kUnproven},
    {"lamb_update", "own", make_cuda_lamb_update, kOverwrites, kUnproven},
    {"adafactor_sums", "own", make_cuda_adafactor_sums, kOverwrites, kUnproven},
    {"adafactor_moments", "own", make_cuda_adafactor_moments, kOverwrites, kUnproven},
    {"adafactor_update", "own", make_cuda_adafactor_update, kOverwrites, kUnproven},
    {"low_precision_update", "own", make_cuda_low_precision_update, kOverwrites, kUnproven},
    {"ema_update", "own", make_cuda_ema_update, kOverwrites, kUnproven},
    {"clip_percentile", "own", make_cuda_clip_percentile, kOverwrites, kUnproven},
    {"reshape", "alias", make_reshape, kOverwrites, kUnproven},
    {"tree_sum", "own", make_cuda_tree_sum, kOverwrites, kUnproven},
    {"sum_of_squares", "own", make_cuda_sum_of_squares, kOverwrites, kUnproven},
    {"gradient_norm_of", "own", make_cuda_gradient_norm_of, kOverwrites, kUnproven},
    {"all_reduce_begin", "messages", make_all_reduce_begin, kOverwrites, kUnproven},
    {"all_reduce_end", "messages", make_all_reduce_end, kOverwrites, kUnproven},
    {"reduce_scatter_begin", "messages", make_reduce_scatter_begin, kOverwrites, kUnproven},
    {"reduce_scatter_end", "messages", make_wait, kOverwrites, kUnproven},
    {"all_gather_begin", "messages", make_all_gather_begin, kOverwrites, kUnproven},
    {"all_gather_end", "messages", make_wait, kOverwrites, kUnproven},
    {"send_begin", "messages", make_send_begin, kOverwrites, kUnproven},
    {"send_end", "messages", make_wait, kOverwrites, kUnproven},
    {"receive_begin", "messages", make_receive_begin, kOverwrites, kUnproven},
    {"receive_end", "messages", make_wait, kOverwrites, kUnproven},
};

}  // namespace

std::span<const KernelRow> cuda_own_rows() {
  static const std::vector<KernelRow> rows = with_through_f32(
      with_elementwise({"", "own", make_cuda_elementwise, kAccumulates, kUnproven},
                       {"", "own", make_cuda_element_update, kOverwrites, kUnproven}, kRows),
      make_cuda_through_f32, kUnproven);
  return rows;
}

}  // namespace dltrain
