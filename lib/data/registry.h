// The table of dataset kinds. A new kind is its own file, a row here, and a test.
#pragma once

#include "config/fields.h"
#include "data/config.h"

namespace dltrain {

const KindTable<DatasetConfig>& dataset_table();

// One row of each file.
KindRow<DatasetConfig> csv_row();
KindRow<DatasetConfig> synthetic_row();
KindRow<DatasetConfig> tensors_row();

}  // namespace dltrain
