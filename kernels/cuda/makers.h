// The kernel makers of the CUDA engine and their two tables.
//
// Own kernels are plain CUDA (no vendor library, no inline PTX): the same sources run on the CPU
// under tests/cuda_emulation. Vendor rows come first in the engine's table.
#pragma once

#include <span>

#include "ops/kernel.h"

namespace dltrain {

std::span<const KernelRow> cuda_vendor_rows();  // vendor/table.cpp
std::span<const KernelRow> cuda_own_rows();     // table.cpp

// The engine of these kernels: the plug-in's, or the emulated one of the tests.
const Engine& cuda_engine();

// Each returns nullptr for dtypes and attributes it does not serve.
using Maker = std::unique_ptr<Kernel>(const KernelRequest&);
Maker make_cuda_through_f32;  // any op of bf16 or f16
Maker make_cuda_elementwise, make_cuda_cast, make_cuda_broadcast, make_cuda_fused;
Maker make_cuda_reduce;
Maker make_cuda_plain_matmul;
Maker make_cuda_plain_conv2d, make_cuda_plain_conv2d_input, make_cuda_plain_conv2d_weight;
Maker make_cuda_max_pool2d, make_cuda_max_pool2d_backward;
Maker make_cuda_batch_norm, make_cuda_batch_norm_backward, make_cuda_batch_norm_inference;
Maker make_cuda_batch_norm_update;
Maker make_cuda_dropout, make_cuda_dropout2d;
Maker make_cuda_slice, make_cuda_pad, make_cuda_concat, make_cuda_transpose;
Maker make_cuda_group_norm, make_cuda_group_norm_backward;
Maker make_cuda_image_map;  // avg_pool2d, upsample2d and their gradients
Maker make_cuda_adaptive_max_pool2d, make_cuda_adaptive_max_pool2d_backward;
Maker make_cuda_row_norm, make_cuda_row_norm_backward;  // layer_norm and rms_norm
Maker make_cuda_softmax, make_cuda_softmax_backward;    // and log_softmax
Maker make_cuda_embedding, make_cuda_embedding_backward;
Maker make_cuda_rotary, make_cuda_sinusoidal_positions;
Maker make_cuda_attention, make_cuda_attention_backward;
Maker make_cuda_recurrent, make_cuda_recurrent_backward;
Maker make_cuda_recurrent_network, make_cuda_recurrent_network_backward;
Maker make_cuda_carried_state, make_cuda_carry_state, make_cuda_carry_state_in_place;
Maker make_cuda_carried_update;
Maker make_cuda_cached_attention;
Maker make_cuda_token_positions, make_cuda_last_token;
Maker make_cuda_slot_state, make_cuda_slot_state_update;
Maker make_cuda_cross_entropy, make_cuda_cross_entropy_backward;
Maker make_cuda_tree_sum, make_cuda_sum_of_squares, make_cuda_gradient_norm_of;
Maker make_cuda_loss_seed, make_cuda_gradient_norm, make_cuda_element_update;
Maker make_cuda_lars_sums, make_cuda_lars_update, make_cuda_lamb_moments, make_cuda_lamb_update;
Maker make_cuda_adafactor_update;
Maker make_cuda_adafactor_sums, make_cuda_adafactor_moments;
Maker make_cuda_low_precision_update, make_cuda_ema_update, make_cuda_clip_percentile;
Maker make_cuda_elementwise_loss, make_cuda_elementwise_loss_backward;
Maker make_cuda_weighted_cross_entropy, make_cuda_weighted_cross_entropy_backward;
Maker make_cuda_metric_sums;  // confusion_matrix, top_k_correct, regression_sums, binary_counts

}  // namespace dltrain
