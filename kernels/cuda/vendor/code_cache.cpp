#include "cuda/vendor/code_cache.h"

#include <cstdlib>
#include <span>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"

namespace dltrain {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxBytes = uint64_t{16} << 20;

std::string hash_of(std::string_view text) {
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(text)));
  return hasher.hex();
}

// Returns the header of a file, hashes of key and code, which precedes the code.
std::string header_of(const std::string& key, std::string_view code) {
  return fmt::format("dltrain-code 1 {} {}\n", hash_of(key), hash_of(code));
}

fs::path path_of(const fs::path& folder, const std::string& key) {
  return folder / "code" / hash_of(key);
}

// Returns nothing if there is no such file, or if it is unreadable or damaged.
std::optional<std::string> read_code(const fs::path& path, const std::string& key) {
  try {
    std::error_code error;
    if (!fs::is_regular_file(path, error)) return {};
    const std::string content = read_file(path, kMaxBytes, ExitCode::storage);
    const size_t line = content.find('\n');
    if (line == std::string::npos) return {};
    std::string code = content.substr(line + 1);
    if (content.substr(0, line + 1) != header_of(key, code)) return {};
    return code;
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::optional<fs::path> cache_folder() {
  if (const char* own = std::getenv("DLTRAIN_CACHE_DIR")) {
    return *own == '\0' ? std::nullopt : std::optional<fs::path>(own);
  }
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg != '\0') {
    return fs::path(xdg) / "dltrain";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return fs::path(home) / ".cache" / "dltrain";
  }
  return {};
}

std::string cached_code(const std::optional<fs::path>& folder, const std::string& key,
                        const std::function<std::string()>& make) {
  if (!folder) return make();
  if (auto code = read_code(path_of(*folder, key), key)) return *code;
  std::string code = make();
  if (!code.empty()) keep_code(folder, key, code);
  return code;
}

void keep_code(const std::optional<fs::path>& folder, const std::string& key,
               const std::string& code) {
  if (!folder) return;
  const fs::path path = path_of(*folder, key);
  if (read_code(path, key) == code) return;
  try {
    make_directories(path.parent_path());
    write_file_atomically(path, header_of(key, code) + code);
  } catch (const Error&) {  // a full or read-only disk is not an error
  }
}

}  // namespace dltrain
