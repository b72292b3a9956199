// The table of layers. A new layer needs its own file, its rows here, and a test.
#include "nn/layers.h"

namespace dltrain {

const KindTable<Layer>& layer_table() {
  static const auto table = joined_table<Layer>(
      "layer", {linear_rows(), conv2d_rows(), norm_rows(), dropout_rows(), pooling_rows(),
                embedding_rows(), activations_rows(), rearrange_rows(), structure_rows(),
                tokens_rows(), recurrent_rows(), attention_rows()});
  return table;
}

}  // namespace dltrain
