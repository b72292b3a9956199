// What is fitted to the training split and then holds for all data of a model: means and standard
// deviations of inputs (`normalize: auto`), and the means that stand for empty cells of tables.
#pragma once

#include <memory>

#include "data/dataset.h"
#include "data/schema.h"

namespace dltrain {

struct InputFit {
  bool normalize = false;  // f32 inputs to mean 0 and standard deviation 1
  bool fill = false;       // NaN to the mean
  bool any() const { return normalize || fill; }
};

// The schema of `train` with its statistics: of a table by column, else by channel (the innermost
// dimension), of the samples as evaluation sees them. Categories are not normalized, nor is what
// never varies. Images that must be decoded are represented by 2,000 of them.
std::shared_ptr<const DataSchema> fit_inputs(const Dataset& train, const InputFit& fit);

// The samples of `data` as the statistics of `schema` say; `data` itself where it has none.
std::shared_ptr<const Dataset> apply_fit(std::shared_ptr<const Dataset> data,
                                         std::shared_ptr<const DataSchema> schema);

}  // namespace dltrain
