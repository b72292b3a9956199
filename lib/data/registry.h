// The table of dataset kinds. A new kind needs its own file, a row here, and a test.
#pragma once

#include "config/fields.h"
#include "data/config.h"

namespace dltrain {

const KindTable<DatasetConfig>& dataset_table();

// The row of each kind.
KindRow<DatasetConfig> cifar100_row();
KindRow<DatasetConfig> cifar10_row();
KindRow<DatasetConfig> csv_row();
KindRow<DatasetConfig> idx_row();
KindRow<DatasetConfig> image_folder_row();
KindRow<DatasetConfig> jsonl_row();
KindRow<DatasetConfig> packed_images_row();
KindRow<DatasetConfig> synthetic_row();
KindRow<DatasetConfig> synthetic_tokens_row();
KindRow<DatasetConfig> tensors_row();
KindRow<DatasetConfig> text_row();
KindRow<DatasetConfig> tokens_row();

}  // namespace dltrain
