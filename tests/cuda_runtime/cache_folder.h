// A cache folder of its own for choices, plans and programs, until the end of a test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "temporary_folder.h"

namespace dltrain {

struct CacheFolder {
  TemporaryFolder folder;
  CacheFolder() { ::setenv("DLTRAIN_CACHE_DIR", folder.path().c_str(), 1); }
  ~CacheFolder() { ::unsetenv("DLTRAIN_CACHE_DIR"); }
  size_t files() const {
    size_t count = 0;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "code", error)) {
      count += entry.is_regular_file() ? 1 : 0;
    }
    return count;
  }
  // Adds a byte to every file.
  void damage() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder / "code")) {
      std::ofstream(entry.path(), std::ios::app) << '!';
    }
  }
};

}  // namespace dltrain
