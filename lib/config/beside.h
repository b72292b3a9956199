// Paths that a configuration gives for what usually lies beside it, such as the folder that it is
// in.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "config/place.h"

namespace dltrain {

// The path `given`, written at `place`. A relative one is taken from the folder of the file that it
// is written in, where `is_there` accepts that, and otherwise as it stands: from where the program
// was started.
std::filesystem::path beside_configuration(
    const Place& place, const std::string& given,
    const std::function<bool(const std::filesystem::path&)>& is_there);

}  // namespace dltrain
