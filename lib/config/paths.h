// Files and folders that a configuration names. One rule for all keys: a relative path lies beside
// the file that it is written in, and where it is not there, in the current folder; one of the
// command line (-s) in the current folder.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "config/problems.h"
#include "config/slots.h"

namespace dltrain {

// The path `given`, written at `place`: that beside the file where `is_there` accepts it, else as
// it stands.
std::filesystem::path beside_configuration(
    const Place& place, const std::string& given,
    const std::function<bool(const std::filesystem::path&)>& is_there);

// The same for a file, a folder, or a glob pattern of files.
std::string find_path(const Place& place, const std::string& given);

// Throws ConfigError with the exit code `code` where a path of the object (Key::is_path), or of
// what it holds, is not there: with its place, the folders that were looked into, and the nearest
// name that exists. The object is only read.
void refuse_missing_paths(ObjectRef object, ExitCode code);

// "; did you mean data/digits.csv?" for a path that does not exist, or nothing.
std::string suggest_path(const std::filesystem::path& missing);

}  // namespace dltrain
