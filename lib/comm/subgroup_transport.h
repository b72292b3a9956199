// Some ranks of a transport as a transport of their own: channels over the connections that are
// there, links of its own.
#pragma once

#include <memory>
#include <vector>

#include "comm/transport.h"

namespace dltrain {

// `ranks`: ascending ranks of `whole`, its own among them; peers are counted in their order.
// All of them call it, under the same number, which no other group of `whole` has. `whole` outlives
// it. Slots are those of `whole`: users of both must not take the same. close() closes `whole`,
// which breaks these links too, so that a failure in one group ends all; the destructor closes its
// links only.
std::unique_ptr<Transport> make_subgroup(Transport& whole, std::vector<int> ranks, int number);

}  // namespace dltrain
