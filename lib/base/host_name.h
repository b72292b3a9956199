// The name of this machine, for messages.
#pragma once

#include <string>

#include <unistd.h>

namespace dltrain {

// Returns "?" if it has none.
inline std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "?";
}

}  // namespace dltrain
