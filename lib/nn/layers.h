// One list a layer file: its rows of the table in nn/registry.cpp.
#pragma once

#include <vector>

#include "nn/layer.h"

namespace dltrain {

using LayerRows = std::vector<KindRow<Layer>>();
LayerRows linear_rows;
LayerRows conv2d_rows;
LayerRows batch_norm_rows;
LayerRows dropout_rows;
LayerRows conv_transpose2d_rows;
LayerRows pooling_rows;
LayerRows upsample2d_rows;
LayerRows layer_norm_rows;
LayerRows group_norm_rows;
LayerRows embedding_rows;
LayerRows activations_rows;
LayerRows rearrange_rows;
LayerRows composed_activations_rows;
LayerRows merge_rows;
LayerRows structure_rows;
LayerRows tokens_rows;
LayerRows multi_head_attention_rows;
LayerRows recurrent_rows;
LayerRows attention_rows;

}  // namespace dltrain
