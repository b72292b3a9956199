// One function a layer file: its row of the table in nn/registry.cpp.
#pragma once

#include "nn/layer.h"

namespace dltrain {

KindRow<Layer> linear_row();
KindRow<Layer> lm_head_row();
KindRow<Layer> attention_row();
KindRow<Layer> identity_row();
KindRow<Layer> token_type_embedding_row();
KindRow<Layer> sinusoidal_positions_row();
KindRow<Layer> rotary_positions_row();
KindRow<Layer> conv2d_row();
KindRow<Layer> max_pool2d_row();
KindRow<Layer> batch_norm_row();
KindRow<Layer> dropout_row();
KindRow<Layer> conv_transpose2d_row();
KindRow<Layer> avg_pool2d_row();
KindRow<Layer> adaptive_avg_pool2d_row();
KindRow<Layer> adaptive_max_pool2d_row();
KindRow<Layer> global_avg_pool2d_row();
KindRow<Layer> global_max_pool2d_row();
KindRow<Layer> upsample2d_row();
KindRow<Layer> layer_norm_row();
KindRow<Layer> rms_norm_row();
KindRow<Layer> group_norm_row();
KindRow<Layer> embedding_row();
KindRow<Layer> dropout2d_row();
KindRow<Layer> flatten_row();
KindRow<Layer> reshape_row();
KindRow<Layer> transpose_row();
KindRow<Layer> slice_row();
KindRow<Layer> pad2d_row();
KindRow<Layer> relu_row();
KindRow<Layer> gelu_row();
KindRow<Layer> silu_row();
KindRow<Layer> tanh_row();
KindRow<Layer> sigmoid_row();
KindRow<Layer> leaky_relu_row();
KindRow<Layer> elu_row();
KindRow<Layer> selu_row();
KindRow<Layer> softplus_row();
KindRow<Layer> mish_row();
KindRow<Layer> hardswish_row();
KindRow<Layer> hardsigmoid_row();
KindRow<Layer> hardtanh_row();
KindRow<Layer> relu6_row();
KindRow<Layer> softsign_row();
KindRow<Layer> quick_gelu_row();
KindRow<Layer> prelu_row();
KindRow<Layer> celu_row();
KindRow<Layer> log_sigmoid_row();
KindRow<Layer> tanhshrink_row();
KindRow<Layer> softshrink_row();
KindRow<Layer> glu_row();
KindRow<Layer> softmax_row();
KindRow<Layer> log_softmax_row();
KindRow<Layer> add_row();
KindRow<Layer> multiply_row();
KindRow<Layer> concat_row();
KindRow<Layer> sequential_row();
KindRow<Layer> residual_row();
KindRow<Layer> branches_row();
KindRow<Layer> repeat_row();
KindRow<Layer> block_row();
KindRow<Layer> class_token_row();
KindRow<Layer> position_embedding_row();
KindRow<Layer> multi_head_attention_row();
KindRow<Layer> lstm_row();
KindRow<Layer> gru_row();
KindRow<Layer> rnn_row();

}  // namespace dltrain
