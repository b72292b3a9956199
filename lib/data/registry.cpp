#include "data/registry.h"

namespace dltrain {

const KindTable<DatasetConfig>& dataset_table() {
  static const KindTable<DatasetConfig> table{"dataset",
                                              {csv_row(), tensors_row(), synthetic_row()}};
  return table;
}

}  // namespace dltrain
