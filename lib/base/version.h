// The release, and the revision of the sources. Printed by `dltrain version` and written into every
// checkpoint and summary.
#pragma once

#include <string_view>

namespace dltrain {

// The release, "0.1.0" (from project(VERSION) in CMakeLists.txt).
std::string_view version();

// The git revision at build time, with "-dirty" when files were changed; "unknown" outside git.
std::string_view git_revision();

}  // namespace dltrain
