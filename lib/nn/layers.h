// The rows of each file of layers for the table in nn/registry.cpp.
#pragma once

#include <vector>

#include "nn/layer.h"

namespace dltrain {

using LayerRows = std::vector<KindRow<Layer>>();
LayerRows linear_rows;
LayerRows conv2d_rows;
LayerRows norm_rows;
LayerRows dropout_rows;
LayerRows pooling_rows;
LayerRows embedding_rows;
LayerRows activations_rows;
LayerRows rearrange_rows;
LayerRows structure_rows;
LayerRows tokens_rows;
LayerRows recurrent_rows;
LayerRows attention_rows;

}  // namespace dltrain
