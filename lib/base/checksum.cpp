#include "base/checksum.h"

#include <algorithm>

#include <nlohmann/json.hpp>

// Header-only, so that the program needs no shared library for it.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"

namespace dltrain {
namespace {
constexpr int kFormat = 1;
constexpr uint64_t kMaxChecksumsBytes = 256 << 20, kMaxPieceBytes = 64 << 20;

// A checksums file may not point outside its folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

[[noreturn]] void refuse(const std::string& problem, const std::string& location) {
  throw Error(ExitCode::storage, problem, location);
}

// Adds the hashes of the pieces; files of one piece and those of earlier versions have none.
void read_pieces(const nlohmann::json& entry, FileDigest& digest, const std::string& location) {
  if (!entry.contains("pieces")) return;
  digest.piece_bytes = entry.at("piece_bytes").get<uint64_t>();
  digest.pieces = entry["pieces"].get<std::string>();
  const uint64_t each = digest.piece_bytes;
  const bool sensible = each > 0 && each <= kMaxPieceBytes;
  if (sensible && digest.pieces.size() == (digest.bytes + each - 1) / each * kPieceDigits) return;
  refuse("is a damaged checksums file", location);
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

std::string Hasher::hex64() const {
  return fmt::format("{:016x}", XXH3_64bits_digest(&state_->xxh3));
}

std::string piece_hash(std::span<const std::byte> piece) {
  return fmt::format("{:016x}", XXH3_64bits(piece.data(), piece.size()));
}

void FileHasher::update(std::span<const std::byte> data) {
  // Both hashes of a block are computed while it is in the cache.
  constexpr uint64_t kBlock = 256 << 10;
  while (!data.empty()) {
    const uint64_t left = kPieceBytes - bytes_ % kPieceBytes;
    const auto block = data.first(std::min({left, kBlock, uint64_t{data.size()}}));
    whole_.update(block);
    piece_.update(block);
    bytes_ += block.size();
    data = data.subspan(block.size());
    if (bytes_ % kPieceBytes != 0) continue;
    pieces_ += piece_.hex64();
    piece_ = Hasher();
  }
}

FileDigest FileHasher::digest() const {
  FileDigest out{.bytes = bytes_, .xxh3_128 = whole_.hex()};
  if (bytes_ <= kPieceBytes) return out;
  out.piece_bytes = kPieceBytes;
  out.pieces = bytes_ % kPieceBytes == 0 ? pieces_ : pieces_ + piece_.hex64();
  return out;
}

std::string checksums_to_json(const Checksums& checksums) {
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  for (const auto& [name, digest] : checksums) {
    files[name] = {{"bytes", digest.bytes}, {"xxh3_128", digest.xxh3_128}};
    if (digest.pieces.empty()) continue;
    files[name]["piece_bytes"] = digest.piece_bytes;
    files[name]["pieces"] = digest.pieces;
  }
  return json_text(nlohmann::ordered_json{{"format", kFormat}, {"files", files}}, 2) + "\n";
}

Checksums checksums_from_json(const std::string& text, const std::string& location) {
  const nlohmann::json json = try_parse_json(text);
  if (!json.is_object() || !json.contains("format") || !json["format"].is_number_integer()) {
    refuse("is not a checksums file of dltrain", location);
  }
  if (json["format"] != kFormat) {
    refuse(fmt::format("has checksums of format {}; format {} is supported",
                       json_text(json["format"]), kFormat),
           location);
  }
  try {
    Checksums result;
    for (const auto& [name, entry] : json.at("files").get_ref<const nlohmann::json::object_t&>()) {
      if (!is_plain_name(name) || !entry.at("bytes").is_number_unsigned()) {
        refuse("is a damaged checksums file", location);
      }
      FileDigest& digest = result[name];
      digest.bytes = entry["bytes"].get<uint64_t>();
      digest.xxh3_128 = entry.at("xxh3_128").get<std::string>();
      read_pieces(entry, digest, location);
    }
    return result;
  } catch (const nlohmann::json::exception&) {
    refuse("is a damaged checksums file", location);
  }
}

Checksums read_checksums(const std::filesystem::path& folder) {
  const std::filesystem::path list = folder / kChecksumsFile;
  return checksums_from_json(read_file(list, kMaxChecksumsBytes, ExitCode::storage), list.string());
}

}  // namespace dltrain
