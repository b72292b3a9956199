// Reorders the windows of one stream so that several streams are read in parallel.
//
// The first S · W windows are cut into S streams of W; sample i of the result is window i / S of
// stream i mod S. In file order, a batch of S samples has one window of each stream, and each row
// continues the same row of the previous batch, as recurrent networks with carried state need. An
// epoch has W batches; the remaining windows are left out.
#pragma once

#include <memory>
#include <string>

#include "data/dataset.h"

namespace dltrain {

// The samples of `windows` must be consecutive. Throws Error(data) if there are fewer than
// `streams`; `split` is the name of the data in the message: "data.train".
std::shared_ptr<const Dataset> parallel_streams(std::shared_ptr<const Dataset> windows,
                                                int64_t streams, const std::string& split);

}  // namespace dltrain
