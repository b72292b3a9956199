#include "nn/layer.h"

namespace dltrain {

std::vector<std::vector<KindRow<Layer>>> layer_rows();  // of all files of this folder (generated)

KindTable<Layer>& layer_table() {
  static auto table = joined_table<Layer>("layer", layer_rows());
  return table;
}

}  // namespace dltrain
