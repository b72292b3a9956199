// Machine code of generated programs on disk, so that only the first run of a model on a type of
// GPU compiles. One file per program, named by the hash of everything that the code depends on.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace dltrain {

// Returns $DLTRAIN_CACHE_DIR, $XDG_CACHE_HOME/dltrain or ~/.cache/dltrain; nullopt (no cache) if
// none is set, or DLTRAIN_CACHE_DIR is empty.
std::optional<std::filesystem::path> cache_folder();

// Returns the code stored for `key` in `folder`/code, or the result of make(), which is then stored
// unless it is empty. Replaces files that are damaged or belong to another key; ignores a folder
// that cannot be written.
std::string cached_code(const std::optional<std::filesystem::path>& folder, const std::string& key,
                        const std::function<std::string()>& make);

// Stores the code unless the folder has it for the key already. Ignores a folder that cannot be
// written.
void keep_code(const std::optional<std::filesystem::path>& folder, const std::string& key,
               const std::string& code);

}  // namespace dltrain
