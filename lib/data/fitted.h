// Statistics that are fitted to the training split and used for all data of a model: means and
// standard deviations of inputs (`normalize: auto`), and means that replace empty cells of tables.
#pragma once

#include <memory>

#include "data/dataset.h"
#include "data/schema.h"

namespace dltrain {

struct InputFit {
  bool normalize = false;  // f32 inputs to mean 0 and standard deviation 1
  bool fill = false;       // NaN to the mean
  bool given = false;      // not fitted: the configuration has mean and standard deviation
  bool any() const { return normalize || fill; }
};

// Returns the schema of `train` with its statistics: by column for tables, otherwise by channel
// (the innermost dimension), of the samples as in evaluation. Categories and constant columns are
// not normalized. For encoded images a sample of 2,000 is used.
std::shared_ptr<const DataSchema> fit_inputs(const Dataset& train, const InputFit& fit);

// Applies the statistics of `schema` to `data`. Returns `data` if there are none.
std::shared_ptr<const Dataset> apply_fit(std::shared_ptr<const Dataset> data,
                                         std::shared_ptr<const DataSchema> schema);

}  // namespace dltrain
