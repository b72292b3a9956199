// Several datasets as one: the sources of `data.train.sources` and `data.eval.sources`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace dltrain {

struct NamedData {
  std::string name;
  std::shared_ptr<const Dataset> data;
  double weight = 0, max_epochs = 0;  // see DataSource
};

// The samples of the sources, one source after the other. Training draws from them as
// Dataset::sources() says, and each source sees its own epochs. Throws Error(data) unless the
// sources have the same fields and the same tokenizer.
std::shared_ptr<const Dataset> mix_sources(std::vector<NamedData> sources);

}  // namespace dltrain
