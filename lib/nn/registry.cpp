// The table of layers. A new layer is its own file, a row here, and a test.
#include "nn/layers.h"

namespace dltrain {

const KindTable<Layer>& layer_table() {
  static const KindTable<Layer> table{"layer",
                                      {
                                          linear_row(),
                                          conv2d_row(),
                                          max_pool2d_row(),
                                          batch_norm_row(),
                                          dropout_row(),
                                          conv_transpose2d_row(),
                                          avg_pool2d_row(),
                                          adaptive_avg_pool2d_row(),
                                          adaptive_max_pool2d_row(),
                                          global_avg_pool2d_row(),
                                          global_max_pool2d_row(),
                                          upsample2d_row(),
                                          layer_norm_row(),
                                          rms_norm_row(),
                                          group_norm_row(),
                                          embedding_row(),
                                          dropout2d_row(),
                                          flatten_row(),
                                          reshape_row(),
                                          transpose_row(),
                                          slice_row(),
                                          pad2d_row(),
                                          relu_row(),
                                          gelu_row(),
                                          silu_row(),
                                          tanh_row(),
                                          sigmoid_row(),
                                          leaky_relu_row(),
                                          elu_row(),
                                          selu_row(),
                                          softplus_row(),
                                          mish_row(),
                                          hardswish_row(),
                                          hardsigmoid_row(),
                                          hardtanh_row(),
                                          relu6_row(),
                                          softsign_row(),
                                          quick_gelu_row(),
                                          softmax_row(),
                                          log_softmax_row(),
                                          add_row(),
                                          multiply_row(),
                                          concat_row(),
                                          sequential_row(),
                                          residual_row(),
                                          branches_row(),
                                          repeat_row(),
                                          block_row(),
                                          class_token_row(),
                                          position_embedding_row(),
                                          multi_head_attention_row(),
                                      }};
  return table;
}

}  // namespace dltrain
