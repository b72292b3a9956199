// The name of this machine, for messages.
#pragma once

#include <string>

namespace dltrain {

// Returns "?" if it has none.
std::string host_name();

}  // namespace dltrain
