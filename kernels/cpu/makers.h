// The makers of this folder's kernels, one file an op (or family); table.cpp lists them.
#pragma once

#include <memory>

#include "ops/kernel.h"

namespace dltrain {

using MadeKernel = std::unique_ptr<Kernel>;

MadeKernel make_elementwise(const KernelRequest& request);  // every op of shared/elementwise.h
MadeKernel make_fused_elementwise(const KernelRequest& request);
MadeKernel make_cast(const KernelRequest& request);
MadeKernel make_low_precision_update(const KernelRequest& request);
MadeKernel make_broadcast(const KernelRequest& request);
MadeKernel make_concat(const KernelRequest& request);
MadeKernel make_slice(const KernelRequest& request);
MadeKernel make_pad(const KernelRequest& request);
MadeKernel make_transpose(const KernelRequest& request);
MadeKernel make_reduce(const KernelRequest& request);
MadeKernel make_matmul_onednn(const KernelRequest& request);
MadeKernel make_matmul_panels(const KernelRequest& request);
MadeKernel make_conv2d_product(const KernelRequest& request);
MadeKernel make_conv2d_onednn(const KernelRequest& request);
MadeKernel make_conv2d_backward_input_onednn(const KernelRequest& request);
MadeKernel make_conv2d_backward_weight_onednn(const KernelRequest& request);
// For few channels and many samples; own kernels.
MadeKernel make_conv2d_lanes(const KernelRequest& request);
MadeKernel make_conv2d_backward_input_lanes(const KernelRequest& request);
MadeKernel make_conv2d_backward_weight_lanes(const KernelRequest& request);
// For many channels; own kernel.
MadeKernel make_conv2d_backward_weight_panels(const KernelRequest& request);
MadeKernel make_conv2d_moments(const KernelRequest& request);
MadeKernel make_conv2d_batch_norm(const KernelRequest& request);
MadeKernel make_batch_moments(const KernelRequest& request);  // of conv2d_moments, no op itself
MadeKernel make_max_pool2d(const KernelRequest& request);
MadeKernel make_max_pool2d_backward(const KernelRequest& request);
MadeKernel make_batch_norm(const KernelRequest& request);
MadeKernel make_batch_norm_backward(const KernelRequest& request);
MadeKernel make_batch_norm_inference(const KernelRequest& request);
MadeKernel make_batch_norm_update(const KernelRequest& request);
MadeKernel make_dropout(const KernelRequest& request);
MadeKernel make_layer_norm(const KernelRequest& request);           // rms_norm too
MadeKernel make_layer_norm_backward(const KernelRequest& request);  // rms_norm too
MadeKernel make_group_norm(const KernelRequest& request);
MadeKernel make_group_norm_backward(const KernelRequest& request);
MadeKernel make_image_map(const KernelRequest& request);  // avg_pool2d, upsample2d
MadeKernel make_adaptive_max_pool2d(const KernelRequest& request);
MadeKernel make_adaptive_max_pool2d_backward(const KernelRequest& request);
MadeKernel make_embedding(const KernelRequest& request);
MadeKernel make_embedding_backward(const KernelRequest& request);
MadeKernel make_dropout2d(const KernelRequest& request);
MadeKernel make_softmax(const KernelRequest& request);  // log_softmax and gradients too
MadeKernel make_softmax_cross_entropy(const KernelRequest& request);
MadeKernel make_softmax_cross_entropy_backward(const KernelRequest& request);
MadeKernel make_weighted_cross_entropy(const KernelRequest& request);
MadeKernel make_weighted_cross_entropy_backward(const KernelRequest& request);
MadeKernel make_elementwise_loss(const KernelRequest& request);
MadeKernel make_elementwise_loss_backward(const KernelRequest& request);
MadeKernel make_confusion_matrix(const KernelRequest& request);
MadeKernel make_top_k_correct(const KernelRequest& request);
MadeKernel make_regression_sums(const KernelRequest& request);
MadeKernel make_binary_counts(const KernelRequest& request);
MadeKernel make_identity_f64(const KernelRequest& request);
MadeKernel make_attention(const KernelRequest& request);
MadeKernel make_attention_backward(const KernelRequest& request);
MadeKernel make_cached_attention(const KernelRequest& request);
MadeKernel make_token_positions(const KernelRequest& request);
MadeKernel make_last_token(const KernelRequest& request);
MadeKernel make_slot_state(const KernelRequest& request);
MadeKernel make_slot_state_update(const KernelRequest& request);
MadeKernel make_matmul_rows(const KernelRequest& request);
MadeKernel make_recurrent(const KernelRequest& request);
MadeKernel make_recurrent_backward(const KernelRequest& request);
MadeKernel make_recurrent_network(const KernelRequest& request);
MadeKernel make_recurrent_network_backward(const KernelRequest& request);
MadeKernel make_carried_state(const KernelRequest& request);
MadeKernel make_carry_state(const KernelRequest& request);
MadeKernel make_carry_state_in_place(const KernelRequest& request);
MadeKernel make_carried_update(const KernelRequest& request);
MadeKernel make_rotary(const KernelRequest& request);
MadeKernel make_sinusoidal_positions(const KernelRequest& request);
MadeKernel make_loss_seed(const KernelRequest& request);
MadeKernel make_gradient_norm(const KernelRequest& request);
MadeKernel make_sum_of_squares(const KernelRequest& request);
MadeKernel make_tree_sum(const KernelRequest& request);
MadeKernel make_clip_percentile(const KernelRequest& request);
MadeKernel make_ema_update(const KernelRequest& request);
MadeKernel make_element_update(const KernelRequest& request);
MadeKernel make_lars_update(const KernelRequest& request);
MadeKernel make_lamb_update(const KernelRequest& request);
MadeKernel make_adafactor_update(const KernelRequest& request);

// Any op on bf16 or f16 tensors, by its f32 kernel.
MadeKernel make_through_f32(const KernelRequest& request);

}  // namespace dltrain
