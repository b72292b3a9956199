// The table of layers. A new layer is its own file, a row here, and a test.
#include "nn/layers.h"

namespace dltrain {

const KindTable<Layer>& layer_table() {
  static const KindTable<Layer> table{
      "layer",
      {linear_row(), conv2d_row(), max_pool2d_row(), batch_norm_row(), dropout_row(), flatten_row(),
       relu_row(), gelu_row(), silu_row(), tanh_row(), sigmoid_row()}};
  return table;
}

}  // namespace dltrain
