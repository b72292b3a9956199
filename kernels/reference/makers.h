// The makers that table.cpp lists; each stands in the file of its op.
#pragma once

#include "ops/kernel.h"

namespace dltrain {

using KernelPointer = std::unique_ptr<Kernel>;

KernelPointer reference_elementwise(const KernelRequest& request);
KernelPointer reference_cast(const KernelRequest& request);
KernelPointer reference_fused_elementwise(const KernelRequest& request);
KernelPointer reference_reduce(const KernelRequest& request);
KernelPointer reference_broadcast(const KernelRequest& request);
KernelPointer reference_concat(const KernelRequest& request);
KernelPointer reference_slice(const KernelRequest& request);
KernelPointer reference_pad(const KernelRequest& request);
KernelPointer reference_transpose(const KernelRequest& request);
KernelPointer reference_matmul(const KernelRequest& request);
KernelPointer reference_conv2d(const KernelRequest& request);
KernelPointer reference_conv2d_backward_input(const KernelRequest& request);
KernelPointer reference_conv2d_backward_weight(const KernelRequest& request);
KernelPointer reference_conv2d_moments(const KernelRequest& request);
KernelPointer reference_conv2d_batch_norm(const KernelRequest& request);
KernelPointer reference_max_pool2d(const KernelRequest& request);
KernelPointer reference_max_pool2d_backward(const KernelRequest& request);
KernelPointer reference_batch_norm(const KernelRequest& request);
KernelPointer reference_batch_norm_backward(const KernelRequest& request);
KernelPointer reference_batch_norm_inference(const KernelRequest& request);
KernelPointer reference_batch_norm_update(const KernelRequest& request);
KernelPointer reference_dropout(const KernelRequest& request);
KernelPointer reference_layer_norm(const KernelRequest& request);           // rms_norm too
KernelPointer reference_layer_norm_backward(const KernelRequest& request);  // rms_norm too
KernelPointer reference_group_norm(const KernelRequest& request);
KernelPointer reference_group_norm_backward(const KernelRequest& request);
KernelPointer reference_image_map(const KernelRequest& request);  // avg_pool2d, upsample2d
KernelPointer reference_adaptive_max_pool2d(const KernelRequest& request);
KernelPointer reference_adaptive_max_pool2d_backward(const KernelRequest& request);
KernelPointer reference_embedding(const KernelRequest& request);
KernelPointer reference_embedding_backward(const KernelRequest& request);
KernelPointer reference_dropout2d(const KernelRequest& request);
KernelPointer reference_softmax(const KernelRequest& request);  // log_softmax too
KernelPointer reference_softmax_backward(const KernelRequest& request);
KernelPointer reference_softmax_cross_entropy(const KernelRequest& request);
KernelPointer reference_softmax_cross_entropy_backward(const KernelRequest& request);
KernelPointer reference_attention(const KernelRequest& request);
KernelPointer reference_attention_backward(const KernelRequest& request);
KernelPointer reference_cached_attention(const KernelRequest& request);
KernelPointer reference_token_positions(const KernelRequest& request);
KernelPointer reference_last_token(const KernelRequest& request);
KernelPointer reference_slot_state(const KernelRequest& request);
KernelPointer reference_slot_state_update(const KernelRequest& request);
KernelPointer reference_recurrent(const KernelRequest& request);
KernelPointer reference_recurrent_backward(const KernelRequest& request);
KernelPointer reference_recurrent_network(const KernelRequest& request);
KernelPointer reference_recurrent_network_backward(const KernelRequest& request);
KernelPointer reference_carried_state(const KernelRequest& request);
KernelPointer reference_carry_state(const KernelRequest& request);
KernelPointer reference_carry_state_in_place(const KernelRequest& request);
KernelPointer reference_carried_update(const KernelRequest& request);
KernelPointer reference_rotary(const KernelRequest& request);
KernelPointer reference_sinusoidal_positions(const KernelRequest& request);
KernelPointer reference_weighted_cross_entropy(const KernelRequest& request);
KernelPointer reference_weighted_cross_entropy_backward(const KernelRequest& request);
KernelPointer reference_elementwise_loss(const KernelRequest& request);
KernelPointer reference_elementwise_loss_backward(const KernelRequest& request);
KernelPointer reference_confusion_matrix(const KernelRequest& request);
KernelPointer reference_top_k_correct(const KernelRequest& request);
KernelPointer reference_regression_sums(const KernelRequest& request);
KernelPointer reference_binary_counts(const KernelRequest& request);
KernelPointer reference_loss_seed(const KernelRequest& request);
KernelPointer reference_gradient_norm(const KernelRequest& request);
KernelPointer reference_sum_of_squares(const KernelRequest& request);
KernelPointer reference_tree_sum(const KernelRequest& request);
KernelPointer reference_clip_percentile(const KernelRequest& request);
KernelPointer reference_ema_update(const KernelRequest& request);
KernelPointer reference_sgd_update(const KernelRequest& request);
KernelPointer reference_adam_update(const KernelRequest& request);
KernelPointer reference_adamw_update(const KernelRequest& request);
KernelPointer reference_adagrad_update(const KernelRequest& request);
KernelPointer reference_rmsprop_update(const KernelRequest& request);
KernelPointer reference_lion_update(const KernelRequest& request);
KernelPointer reference_lars_update(const KernelRequest& request);
KernelPointer reference_lamb_update(const KernelRequest& request);
KernelPointer reference_adafactor_update(const KernelRequest& request);
KernelPointer reference_low_precision_update(const KernelRequest& request);

}  // namespace dltrain
