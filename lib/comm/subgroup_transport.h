// Some ranks of a transport as a transport of their own, over the connections that are there.
#pragma once

#include <memory>
#include <vector>

#include "comm/transport.h"

namespace dltrain {

// `ranks`: ascending ranks of `whole`, its own among them; peers are counted in their order.
// `whole` outlives it. Slots are those of `whole`: users of both must not take the same. close()
// closes `whole`, so that a failure in one group ends all; the destructor closes nothing.
std::unique_ptr<Transport> make_subgroup(Transport& whole, std::vector<int> ranks);

}  // namespace dltrain
