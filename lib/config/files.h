// Configuration files and what they inherit.
//
// `extends: other.yaml` at the top of a file (or a list of files) is laid below the file; paths are
// relative to the file that says so. A cycle is a problem that shows the chain.
#pragma once

#include <filesystem>
#include <optional>
#include <span>

#include "config/load.h"

namespace dltrain {

// More files than this, `extends` counted each time, are a mistake.
inline constexpr size_t kMaxConfigFiles = 100;

// All files merged in order; an empty map for none. Empty: some file could not be read.
std::optional<ConfigNode> load_files(std::span<const std::filesystem::path> files,
                                     const EnvironmentLookup& environment, Problems& problems);

}  // namespace dltrain
