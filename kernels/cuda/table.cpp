// The engine's own kernels. None has run on a GPU yet, so every row is unproven: they are compiled
// for sm_80 and sm_90 and checked on the CPU under tests/cuda_emulation.
#include "cuda/makers.h"
#include "shared/common_kernels.h"

namespace dltrain {
namespace {

constexpr bool kAccumulates = true, kOverwrites = false, kUnproven = false;

constinit const KernelRow kRows[] = {
    {"relu", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"gelu", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"gelu_tanh", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"silu", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"tanh", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"sigmoid", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"exp", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"log", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"sqrt", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"square", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"affine", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"identity", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"leaky_relu", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"elu", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"selu", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"softplus", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"mish", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"hardswish", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"hardsigmoid", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"hardtanh", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"softsign", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"quick_gelu", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"cast", "own", make_cuda_cast, kOverwrites, kUnproven},
    {"relu_backward", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"gelu_backward", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"gelu_tanh_backward", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"silu_backward", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"tanh_backward", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"sigmoid_backward", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"leaky_relu_backward", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"elu_backward", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"selu_backward", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"softplus_backward", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"mish_backward", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"hardswish_backward", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"hardsigmoid_backward", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"hardtanh_backward", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"softsign_backward", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"quick_gelu_backward", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"add", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"sub", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"mul", "own", make_cuda_elementwise, kAccumulates, kUnproven},
    {"div", "own", make_cuda_elementwise, kAccumulates, kUnproven},
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
    {"softmax_cross_entropy", "own", make_cuda_cross_entropy, kOverwrites, kUnproven},
    {"softmax_cross_entropy_backward", "own", make_cuda_cross_entropy_backward, kOverwrites,
     kUnproven},
    {"loss_seed", "own", make_cuda_loss_seed, kOverwrites, kUnproven},
    {"gradient_norm", "own", make_cuda_gradient_norm, kOverwrites, kUnproven},
    {"sgd_update", "own", make_cuda_element_update, kOverwrites, kUnproven},
    {"adam_update", "own", make_cuda_element_update, kOverwrites, kUnproven},
    {"adamw_update", "own", make_cuda_element_update, kOverwrites, kUnproven},
    {"adagrad_update", "own", make_cuda_element_update, kOverwrites, kUnproven},
    {"rmsprop_update", "own", make_cuda_element_update, kOverwrites, kUnproven},
    {"lion_update", "own", make_cuda_element_update, kOverwrites, kUnproven},
    {"reshape", "alias", make_reshape, kOverwrites, kUnproven},
    {"all_reduce_begin", "one rank", make_cuda_all_reduce_begin, kOverwrites, kUnproven},
    {"all_reduce_end", "one rank", make_cuda_all_reduce_end, kOverwrites, kUnproven},
};

}  // namespace

std::span<const KernelRow> cuda_own_rows() {
  return kRows;
}

}  // namespace dltrain
