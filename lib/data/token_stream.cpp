#include "data/token_stream.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace dltrain {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename T>
void widen(const std::byte* from, int64_t count, int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    T id;
    std::memcpy(&id, from + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    out[i] = static_cast<int32_t>(id);
  }
}

// Ids are compared as unsigned numbers, so that negative ones count as too large.
uint32_t largest(const int32_t* ids, int64_t count) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, static_cast<uint32_t>(ids[i]));
  return most;
}

}  // namespace

TokenStream::TokenStream(std::vector<TokenSegment> segments, Metadata metadata,
                         std::shared_ptr<const void> memory)
    : segments_(std::move(segments)),
      begins_{0},
      metadata_(std::move(metadata)),
      memory_(std::move(memory)) {
  for (const TokenSegment& segment : segments_) {
    check_internal(segment.size() > 0 && (segment.width == 2 || segment.width == 4),
                   "{} ids of {} bytes", segment.size(), segment.width);
    begins_.push_back(begins_.back() + segment.size());
  }
  check_internal(!segments_.empty(), "no tokens");
  if (metadata_.vocab_size != 0) return;
  metadata_.vocab_size = int64_t{INT32_MAX};
  uint32_t most = 0;
  for_each(0, size(), [&](std::span<const int32_t> ids) {
    most = std::max(most, largest(ids.data(), static_cast<int64_t>(ids.size())));
  });
  metadata_.vocab_size = int64_t{most} + 1;
  metadata_.checked = true;
}

void TokenStream::check() {
  if (!metadata_.checked) for_each(0, size(), [](std::span<const int32_t>) {});
  metadata_.checked = true;
}

size_t TokenStream::segment_of(int64_t position) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), position);
  return static_cast<size_t>(after - begins_.begin()) - 1;
}

void TokenStream::read(int64_t first, int64_t count, int32_t* out) const {
  for (size_t i = segment_of(first); count > 0; ++i) {
    const TokenSegment& segment = segments_[i];
    const int64_t inside = first - begins_[i];
    const int64_t n = std::min(count, segment.size() - inside);
    const std::byte* from = segment.bytes.data() + inside * segment.width;
    segment.width == 2 ? widen<uint16_t>(from, n, out) : widen<uint32_t>(from, n, out);
    if (!metadata_.checked && int64_t{largest(out, n)} >= metadata_.vocab_size) {
      const auto bad = std::find_if(out, out + n, [&](int32_t id) {
        return int64_t{static_cast<uint32_t>(id)} >= metadata_.vocab_size;
      });
      throw Error(
          ExitCode::data,
          fmt::format("id {} is beyond the vocabulary (0 to {}){}{}", static_cast<uint32_t>(*bad),
                      metadata_.vocab_size - 1, metadata_.vocabulary_of.empty() ? "" : " of ",
                      metadata_.vocabulary_of),
          location_of(first + (bad - out)));
    }
    out += n;
    first += n;
    count -= n;
  }
}

std::string TokenStream::location_of(int64_t position) const {
  const size_t segment = segment_of(position);
  return fmt::format("{}, token {}", segments_[segment].name, position - begins_[segment]);
}

TokenCollector::TokenCollector(int64_t vocab_size, std::filesystem::path file)
    : width_(vocab_size > 65536 ? 4 : 2) {
  if (!file.empty()) file_.emplace(std::move(file));
}

TokenCollector::~TokenCollector() {
  std::error_code ignored;
  if (file_) std::filesystem::remove(file_->path(), ignored);
}

void TokenCollector::begin_segment(std::string name) {
  segments_.emplace_back(std::move(name), size());
}

template <typename T>
void TokenCollector::append(std::span<const int32_t> ids) {
  const size_t at = bytes_.size();
  bytes_.resize(at + ids.size() * sizeof(T));
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<T>(ids[i]);
    std::memcpy(bytes_.data() + at + i * sizeof(T), &id, sizeof(T));
  }
}

void TokenCollector::add(std::span<const int32_t> ids) {
  constexpr size_t kMaxHeld = size_t{4} << 20;  // bytes that wait for a write
  width_ == 4 ? append<uint32_t>(ids) : append<uint16_t>(ids);
  count_ += static_cast<int64_t>(ids.size());
  if (file_ && bytes_.size() > kMaxHeld) write_out();
}

void TokenCollector::write_out() {
  file_->write(bytes_);
  bytes_.clear();
}

std::shared_ptr<const TokenStream> TokenCollector::finish(
    std::shared_ptr<const Tokenizer> tokenizer) {
  struct Memory {
    std::vector<std::byte> bytes;
    MappedFile file;
  };
  if (count_ == 0) {
    throw Error(ExitCode::data, "gives no tokens", segments_.empty() ? "" : segments_[0].first);
  }
  auto memory = std::make_shared<Memory>();
  std::span<const std::byte> all;
  if (file_) {
    write_out();
    file_->close();
    memory->file = MappedFile(file_->path(), ExitCode::storage);
    all = memory->file.bytes();
  } else {
    bytes_.shrink_to_fit();
    memory->bytes = std::move(bytes_);
    all = memory->bytes;
  }
  std::vector<TokenSegment> segments;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const int64_t begin = segments_[i].second;
    const int64_t end = i + 1 < segments_.size() ? segments_[i + 1].second : count_;
    if (begin == end) continue;
    segments.push_back({segments_[i].first,
                        all.subspan(static_cast<size_t>(begin * width_),
                                    static_cast<size_t>((end - begin) * width_)),
                        width_});
  }
  TokenStream::Metadata metadata{tokenizer->vocab_size(), tokenizer, /*checked=*/true};
  return std::make_shared<TokenStream>(std::move(segments), std::move(metadata), std::move(memory));
}

}  // namespace dltrain
