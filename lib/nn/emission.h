// A type shared by emit_list.cpp and emit_parameters.cpp.
#pragma once

#include <string>

#include "nn/layer.h"

namespace dltrain {

// A layer that is being emitted, and the settings of the parameters in it.
struct LayerContext::Emission {
  const Emission* outer;
  const Layer& layer;
  std::string path;
  std::string shared = {};  // path of the layer that `share` names
  mutable bool found_shared = false, used_weight_init = false, used_bias_init = false;
};

}  // namespace dltrain
