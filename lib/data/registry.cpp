#include "data/registry.h"

namespace dltrain {

const KindTable<DatasetConfig>& dataset_table() {
  static const KindTable<DatasetConfig> table{
      "dataset",
      {csv_row(), tensors_row(), idx_row(), cifar10_row(), cifar100_row(), image_folder_row(),
       packed_images_row(), text_row(), jsonl_row(), tokens_row(), synthetic_row(),
       synthetic_tokens_row()}};
  return table;
}

}  // namespace dltrain
