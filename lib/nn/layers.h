// One function a layer file: its row of the table in nn/registry.cpp.
#pragma once

#include "nn/layer.h"

namespace dltrain {

KindRow<Layer> linear_row();
KindRow<Layer> conv2d_row();
KindRow<Layer> max_pool2d_row();
KindRow<Layer> batch_norm_row();
KindRow<Layer> dropout_row();
KindRow<Layer> flatten_row();
KindRow<Layer> relu_row();
KindRow<Layer> gelu_row();
KindRow<Layer> silu_row();
KindRow<Layer> tanh_row();
KindRow<Layer> sigmoid_row();

}  // namespace dltrain
