// Resolves paths in a configuration. A relative path is resolved against the folder of the
// configuration file and, if it does not exist there, against the current folder; a path of the
// command line (-s) against the current folder only.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "config/diagnostics.h"
#include "config/slots.h"

namespace dltrain {

// Resolves the path `given`, written at `location`: beside the configuration file if `is_there`
// accepts that path, else unchanged.
std::filesystem::path beside_configuration(
    const SourceLocation& location, const std::string& given,
    const std::function<bool(const std::filesystem::path&)>& is_there);

// Calls use(path) for each path of a value of a key with Key::is_path.
void each_path(Value& value, const std::function<void(std::string&)>& use);

// Resolves the path of a file or folder, or a glob pattern of files.
std::string find_path(const SourceLocation& location, const std::string& given);

// Returns "No such file or folder: a.csv (looked in FOLDER and FOLDER); did you mean b.csv?".
std::string no_such_path(const SourceLocation& location, const std::string& path);

// Throws ConfigError with the exit code `code` if a path of the object (Key::is_path) or of its
// parts does not exist, with its place, the searched folders, and the nearest name that exists. The
// object is only read.
void refuse_missing_paths(ObjectRef object, ExitCode code);

// Throws Error(usage) if a text of `tree` is the path or glob pattern of a file that was declared
// as an output (base/owned_files.h).
void refuse_outputs(const ConfigNode& tree);

// Returns "; did you mean data/digits.csv?" for a path that does not exist, or an empty text.
std::string suggest_path(const std::filesystem::path& missing);

}  // namespace dltrain
