#include "base/version.h"

namespace dltrain {

std::string_view version() {
  return DLTRAIN_VERSION;
}

}  // namespace dltrain
