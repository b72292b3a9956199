// Detects the pointer files of Git LFS, which stand for large files that have not been fetched.
#pragma once

#include <string_view>

namespace dltrain {

inline bool is_lfs_pointer(std::string_view content) {
  return content.starts_with("version https://git-lfs");
}
inline constexpr const char* kIsLfsPointer =
    "is a Git LFS pointer, not the file itself; run git lfs pull";

}  // namespace dltrain
