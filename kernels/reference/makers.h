// The makers that table.cpp lists; each is in the file of its op.
#pragma once

#include "ops/kernel.h"

namespace dltrain {

using KernelPointer = std::unique_ptr<Kernel>;
using Maker = KernelPointer(const KernelRequest&);

Maker reference_elementwise;  // every op of shared/elementwise.h
Maker reference_fused_elementwise, reference_cast, reference_broadcast, reference_reduce;
Maker reference_concat, reference_slice, reference_pad, reference_transpose;
Maker reference_matmul;
Maker reference_conv2d, reference_conv2d_backward_input, reference_conv2d_backward_weight;
Maker reference_max_pool2d, reference_max_pool2d_backward;
Maker reference_batch_norm, reference_batch_norm_backward, reference_batch_norm_inference;
Maker reference_batch_norm_update;
Maker reference_dropout, reference_dropout2d;
Maker reference_layer_norm, reference_layer_norm_backward;  // rms_norm too
Maker reference_group_norm, reference_group_norm_backward;
Maker reference_image_map;  // avg_pool2d, upsample2d and their gradients
Maker reference_adaptive_max_pool2d, reference_adaptive_max_pool2d_backward;
Maker reference_embedding, reference_embedding_backward;
Maker reference_softmax, reference_softmax_backward;  // log_softmax too
Maker reference_softmax_cross_entropy, reference_softmax_cross_entropy_backward;
Maker reference_weighted_cross_entropy, reference_weighted_cross_entropy_backward;
Maker reference_elementwise_loss, reference_elementwise_loss_backward;
Maker reference_confusion_matrix, reference_top_k_correct, reference_regression_sums;
Maker reference_binary_counts;
Maker reference_attention, reference_attention_backward, reference_cached_attention;
Maker reference_token_positions, reference_last_token, reference_slot_state;
Maker reference_slot_state_update;
Maker reference_recurrent, reference_recurrent_backward, reference_recurrent_network;
Maker reference_recurrent_network_backward;
Maker reference_carried_state, reference_carry_state, reference_carry_state_in_place;
Maker reference_carried_update;
Maker reference_rotary, reference_sinusoidal_positions;
Maker reference_tree_sum, reference_sum_of_squares, reference_gradient_norm;
Maker reference_loss_seed;
Maker reference_sgd_update, reference_adam_update, reference_adamw_update;
Maker reference_adagrad_update;
Maker reference_rmsprop_update, reference_lion_update, reference_lars_update;
Maker reference_lars_sums, reference_lamb_moments;
Maker reference_lamb_update, reference_adafactor_update;
Maker reference_adafactor_sums, reference_adafactor_moments;
Maker reference_low_precision_update, reference_ema_update, reference_clip_percentile;

}  // namespace dltrain
