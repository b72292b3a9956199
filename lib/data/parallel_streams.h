// Windows of one stream, put in the order of several streams that are read in parallel.
//
// The first S · W windows are cut into S streams of W; sample i of the result is window i / S of
// stream i mod S. So in file order a batch of S samples holds one window of each stream, and each
// of its rows goes on where that row ended in the batch before: what a recurrent network that
// carries its state reads. An epoch is W batches; the windows that fill no stream are left out.
#pragma once

#include <memory>
#include <string>

#include "data/dataset.h"

namespace dltrain {

// Of a dataset whose samples follow one another. Throws Error(data) where there are fewer than
// `streams` of them; `split` says of what: "data.train".
std::shared_ptr<const Dataset> parallel_streams(std::shared_ptr<const Dataset> windows,
                                                int64_t streams, const std::string& split);

}  // namespace dltrain
