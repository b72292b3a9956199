// Machine code of generated programs on the disk, so that only the first run of a model on a kind
// of GPU compiles. A file a program, named by the hash of everything that the code depends on.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace dltrain {

// $DLTRAIN_CACHE_DIR, $XDG_CACHE_HOME/dltrain or ~/.cache/dltrain; nothing where none is set, or
// DLTRAIN_CACHE_DIR is empty: nothing is kept then.
std::optional<std::filesystem::path> cache_folder();

// The code kept for `key` in `folder`/code, or what make() returns, which is kept then. A file that
// is damaged or belongs to another key is made anew; a folder that cannot be written is none. What
// is empty is not kept.
std::string cached_code(const std::optional<std::filesystem::path>& folder, const std::string& key,
                        const std::function<std::string()>& make);

}  // namespace dltrain
