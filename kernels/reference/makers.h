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
KernelPointer reference_max_pool2d(const KernelRequest& request);
KernelPointer reference_max_pool2d_backward(const KernelRequest& request);
KernelPointer reference_batch_norm(const KernelRequest& request);
KernelPointer reference_batch_norm_backward(const KernelRequest& request);
KernelPointer reference_batch_norm_inference(const KernelRequest& request);
KernelPointer reference_batch_norm_update(const KernelRequest& request);
KernelPointer reference_dropout(const KernelRequest& request);
KernelPointer reference_softmax(const KernelRequest& request);  // log_softmax too
KernelPointer reference_softmax_backward(const KernelRequest& request);
KernelPointer reference_softmax_cross_entropy(const KernelRequest& request);
KernelPointer reference_softmax_cross_entropy_backward(const KernelRequest& request);
KernelPointer reference_loss_seed(const KernelRequest& request);
KernelPointer reference_gradient_norm(const KernelRequest& request);
KernelPointer reference_sgd_update(const KernelRequest& request);
KernelPointer reference_adamw_update(const KernelRequest& request);
KernelPointer reference_low_precision_update(const KernelRequest& request);

}  // namespace dltrain
