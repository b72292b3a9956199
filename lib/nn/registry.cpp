// The table of layers. A new layer is its own file, its rows here, and a test.
#include "nn/layers.h"

namespace dltrain {

const KindTable<Layer>& layer_table() {
  static const KindTable<Layer> table = [] {
    KindTable<Layer> all{"layer", {}};
    for (LayerRows* of_file :
         {linear_rows, conv2d_rows, batch_norm_rows, dropout_rows, conv_transpose2d_rows,
          pooling_rows, upsample2d_rows, layer_norm_rows, group_norm_rows, embedding_rows,
          activations_rows, rearrange_rows, composed_activations_rows, merge_rows, structure_rows,
          tokens_rows, multi_head_attention_rows, recurrent_rows, attention_rows}) {
      const auto rows = of_file();
      all.rows.insert(all.rows.end(), rows.begin(), rows.end());
    }
    return all;
  }();
  return table;
}

}  // namespace dltrain
