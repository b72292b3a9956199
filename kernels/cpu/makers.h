// The makers of this folder's kernels, one file per op (or family); table.cpp lists them.
#pragma once

#include <memory>

#include "ops/kernel.h"

namespace dltrain {

using MadeKernel = std::unique_ptr<Kernel>;
using Maker = MadeKernel(const KernelRequest&);

Maker make_elementwise;  // every op of shared/elementwise.h
Maker make_fused_elementwise, make_cast, make_broadcast, make_reduce;
Maker make_concat, make_slice, make_pad, make_transpose;
Maker make_matmul_rows, make_matmul_panels, make_matmul_onednn;
Maker make_conv2d_product;
Maker make_conv2d_onednn, make_conv2d_backward_input_onednn, make_conv2d_backward_weight_onednn;
// For few channels and many samples; own kernels.
Maker make_conv2d_lanes, make_conv2d_backward_input_lanes, make_conv2d_backward_weight_lanes;
// For many channels; own kernel.
Maker make_conv2d_backward_weight_panels;
Maker make_max_pool2d, make_max_pool2d_backward;
Maker make_batch_norm, make_batch_norm_backward, make_batch_norm_inference;
Maker make_batch_norm_update;
Maker make_dropout, make_dropout2d;
Maker make_layer_norm, make_layer_norm_backward;  // rms_norm too
Maker make_group_norm, make_group_norm_backward;
Maker make_image_map;  // avg_pool2d, upsample2d and their gradients
Maker make_adaptive_max_pool2d, make_adaptive_max_pool2d_backward;
Maker make_embedding, make_embedding_backward;
Maker make_softmax;  // log_softmax and gradients too
Maker make_softmax_cross_entropy, make_softmax_cross_entropy_backward;
Maker make_weighted_cross_entropy, make_weighted_cross_entropy_backward;
Maker make_elementwise_loss, make_elementwise_loss_backward;
Maker make_confusion_matrix, make_top_k_correct, make_regression_sums, make_binary_counts;
Maker make_attention, make_attention_backward, make_cached_attention;
Maker make_token_positions, make_last_token, make_slot_state, make_slot_state_update;
Maker make_recurrent, make_recurrent_backward, make_recurrent_network;
Maker make_recurrent_network_backward;
Maker make_carried_state, make_carry_state, make_carry_state_in_place, make_carried_update;
Maker make_rotary, make_sinusoidal_positions;
Maker make_tree_sum, make_sum_of_squares, make_gradient_norm, make_loss_seed;
Maker make_element_update, make_lars_sums, make_lars_update, make_lamb_moments, make_lamb_update;
Maker make_adafactor_update;
Maker make_adafactor_sums, make_adafactor_moments;
Maker make_identity_f64;
Maker make_low_precision_update, make_ema_update, make_clip_percentile;

// Runs any op on bf16 or f16 tensors by its f32 kernel.
Maker make_through_f32;

}  // namespace dltrain
