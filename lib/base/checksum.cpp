#include "base/checksum.h"

#include <nlohmann/json.hpp>

// Header-only, so that the program needs no shared library for it.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/file.h"

namespace dltrain {
namespace {
constexpr int kFormat = 1;
constexpr uint64_t kMaxChecksumsBytes = 16 << 20;

// A checksums file may not point outside its folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

Checksums parse(const std::filesystem::path& path, const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("format") || !json["format"].is_number_integer()) {
    throw Error(ExitCode::storage, "is not a checksums file of dltrain", path.string());
  }
  if (json["format"] != kFormat) {
    throw Error(ExitCode::storage,
                fmt::format("has checksums of format {}; format {} is supported",
                            json["format"].dump(), kFormat),
                path.string());
  }
  try {
    Checksums result;
    for (const auto& [name, entry] : json.at("files").get_ref<const nlohmann::json::object_t&>()) {
      if (!is_plain_name(name) || !entry.at("bytes").is_number_unsigned()) {
        throw Error(ExitCode::storage, "is a damaged checksums file", path.string());
      }
      result[name] = {entry["bytes"].get<uint64_t>(), entry.at("xxh3_128").get<std::string>()};
    }
    return result;
  } catch (const nlohmann::json::exception&) {
    throw Error(ExitCode::storage, "is a damaged checksums file", path.string());
  }
}
}  // namespace

struct Hasher::State {
  XXH3_state_t xxh3;
};

Hasher::Hasher() : state_(std::make_shared<State>()) {
  XXH3_128bits_reset(&state_->xxh3);
}

void Hasher::update(std::span<const std::byte> data) {
  XXH3_128bits_update(&state_->xxh3, data.data(), data.size());
}

std::string Hasher::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh3);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string checksums_to_json(const Checksums& checksums) {
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  for (const auto& [name, digest] : checksums) {
    files[name] = {{"bytes", digest.bytes}, {"xxh3_128", digest.xxh3_128}};
  }
  return nlohmann::ordered_json{{"format", kFormat}, {"files", files}}.dump(2) + "\n";
}

Checksums read_checksums(const std::filesystem::path& folder) {
  const std::filesystem::path list = folder / kChecksumsFile;
  return parse(list, read_file(list, kMaxChecksumsBytes, ExitCode::storage));
}

Checksums verify_checksums(const std::filesystem::path& folder) {
  const Checksums checksums = read_checksums(folder);
  for (const auto& [name, expected] : checksums) {
    const MappedFile file(folder / name, ExitCode::storage);
    const uint64_t found = file.bytes().size();
    if (found != expected.bytes) {
      throw Error(
          ExitCode::storage,
          fmt::format("damaged: {} bytes, {} says {}", found, kChecksumsFile, expected.bytes),
          (folder / name).string());
    }
    Hasher hasher;
    hasher.update(file.bytes());
    if (hasher.hex() != expected.xxh3_128) {
      throw Error(ExitCode::storage,
                  fmt::format("damaged: its content does not match {}", kChecksumsFile),
                  (folder / name).string());
    }
  }
  return checksums;
}

}  // namespace dltrain
