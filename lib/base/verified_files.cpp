#include "base/verified_files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <future>
#include <limits>

#include <unistd.h>

#include "base/file.h"

namespace dltrain {
namespace {

constexpr size_t kAhead = 4;  // chunks that are read at the same time

void read_exactly(int fd, uint64_t offset, std::span<std::byte> out,
                  const std::filesystem::path& path) {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      throw Error(ExitCode::storage,
                  fmt::format("cannot read at offset {}: {}", offset,
                              n == 0 ? "it was shortened meanwhile" : errno_text(errno)),
                  path.string());
    }
    offset += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
}

}  // namespace

// A part of a file that is read at once: a piece, or as much of a file without pieces.
struct VerifiedFiles::Chunk {
  ByteRange range;
  bool own = false;                  // is read in full and hashed
  std::string hash = {};             // of the piece; empty: the file has none
  std::vector<ByteRange> uses = {};  // the wanted part
};

VerifiedFiles::VerifiedFiles(std::filesystem::path folder, Checksums files, int number, int readers)
    : folder_(std::move(folder)), files_(std::move(files)) {
  uint64_t all = 0;
  for (const auto& [name, digest] : files_) {
    begins_[name] = all;
    all += digest.bytes;
  }
  const auto n = static_cast<uint64_t>(number), of = static_cast<uint64_t>(readers);
  const auto border = [&](uint64_t i) { return all / of * i + all % of * i / of; };
  first_ = border(n);
  // Empty files at the end belong to the last reader.
  last_ = n + 1 == of ? std::numeric_limits<uint64_t>::max() : border(n + 1);
}

std::vector<VerifiedFiles::Chunk> VerifiedFiles::chunks_of(
    const std::string& name, uint64_t size, std::span<const ByteRange> wanted) const {
  const auto listed = files_.find(name);
  const FileDigest none;
  const FileDigest& digest = listed == files_.end() ? none : listed->second;
  const uint64_t each = digest.pieces.empty() ? kPieceBytes : digest.piece_bytes;
  const uint64_t file = listed == files_.end() ? 0 : begins_.at(name);
  std::vector<Chunk> out;
  auto next = wanted.begin();
  for (uint64_t begin = 0; begin < size || (begin == 0 && size == 0); begin += each) {
    Chunk chunk{.range = {begin, std::min(begin + each, size)}};
    const bool pieces = !digest.pieces.empty();
    chunk.own = listed != files_.end() && is_own(pieces ? file + begin : file);
    if (pieces) chunk.hash = digest.pieces.substr(begin / each * kPieceDigits, kPieceDigits);
    for (; next != wanted.end() && next->begin < chunk.range.end; ++next) {
      chunk.uses.push_back({std::max(next->begin, begin), std::min(next->end, chunk.range.end)});
      if (next->end > chunk.range.end) break;
    }
    if (chunk.own || !chunk.uses.empty()) out.push_back(std::move(chunk));
  }
  return out;
}

void VerifiedFiles::read(const std::string& name, std::span<const ByteRange> wanted,
                         const Use& use) {
  const std::filesystem::path path = folder_ / name;
  const auto listed = files_.find(name);
  bool in_use = false;  // errors of use() are no damage
  try {
    uint64_t size = 0;
    const FileDescriptor fd = open_regular(path, ExitCode::storage, &size);
    if (listed != files_.end() && size != listed->second.bytes) {
      throw Error(
          ExitCode::storage,
          fmt::format("damaged: {} bytes, {} says {}", size, kChecksumsFile, listed->second.bytes),
          path.string());
    }
    const auto refuse = [&] {
      throw Error(ExitCode::storage,
                  fmt::format("damaged: its content does not match {}", kChecksumsFile),
                  path.string());
    };
    const std::vector<Chunk> chunks = chunks_of(name, size, wanted);
    std::array<std::vector<std::byte>, kAhead> buffers;
    std::array<std::future<bool>, kAhead> reads;  // whether the piece has its hash
    const auto start = [&](size_t i) {
      const Chunk& chunk = chunks[i];
      std::vector<std::byte>& buffer = buffers[i % kAhead];
      buffer.resize(chunk.range.end - chunk.range.begin);
      const auto policy = chunks.size() > 1 ? std::launch::async : std::launch::deferred;
      reads[i % kAhead] = std::async(policy, [&chunk, &buffer, &path, fd = fd.get()] {
        const std::vector<ByteRange> whole{chunk.range};
        for (const ByteRange& range : chunk.own ? whole : chunk.uses) {
          const auto part =
              std::span(buffer).subspan(range.begin - chunk.range.begin, range.end - range.begin);
          read_exactly(fd, range.begin, part, path);
        }
        return !chunk.own || chunk.hash.empty() || piece_hash(buffer) == chunk.hash;
      });
    };
    for (size_t i = 0; i < std::min(kAhead, chunks.size()); ++i) start(i);
    Hasher whole;
    bool by_whole = false;
    for (size_t i = 0; i < chunks.size(); ++i) {
      const Chunk& chunk = chunks[i];
      const std::span<const std::byte> buffer = buffers[i % kAhead];
      if (!reads[i % kAhead].get()) refuse();
      if (chunk.own) {
        hashed_ += buffer.size();
        read_ += buffer.size();
        by_whole = chunk.hash.empty();
        if (by_whole) whole.update(buffer);
      }
      for (const ByteRange& range : chunk.uses) {
        if (!chunk.own) read_ += range.end - range.begin;
        in_use = true;
        use(range.begin, buffer.subspan(range.begin - chunk.range.begin, range.end - range.begin));
        in_use = false;
      }
      if (i + kAhead < chunks.size()) start(i + kAhead);
    }
    if (by_whole && whole.hex() != listed->second.xxh3_128) refuse();
  } catch (const Error& error) {
    if (!in_use && listed != files_.end() && damage_.empty()) damage_ = error.what();
    throw;
  }
  passed_.insert(name);
}

std::string VerifiedFiles::finish() {
  for (const auto& [name, digest] : files_) {
    if (!damage_.empty()) break;
    if (passed_.contains(name)) continue;
    try {
      read(name);
    } catch (const Error&) {
      // read() keeps the description.
    }
  }
  return damage_;
}

Checksums verify_checksums(const std::filesystem::path& folder) {
  Checksums checksums = read_checksums(folder);
  VerifiedFiles files(folder, checksums);
  for (const auto& [name, digest] : checksums) files.read(name);
  return checksums;
}

}  // namespace dltrain
