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

// As unsigned numbers, so that what does not fit an i32 is large.
uint32_t largest(const int32_t* ids, int64_t count) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, static_cast<uint32_t>(ids[i]));
  return most;
}

}  // namespace

TokenStream::TokenStream(std::vector<TokenSegment> segments, About about,
                         std::shared_ptr<const void> memory)
    : segments_(std::move(segments)),
      begins_{0},
      about_(std::move(about)),
      memory_(std::move(memory)) {
  for (const TokenSegment& segment : segments_) {
    check_internal(segment.size() > 0 && (segment.width == 2 || segment.width == 4),
                   "{} ids of {} bytes", segment.size(), segment.width);
    begins_.push_back(begins_.back() + segment.size());
  }
  check_internal(!segments_.empty(), "no tokens");
  if (about_.vocab_size != 0) return;
  about_.vocab_size = int64_t{INT32_MAX};
  uint32_t most = 0;
  for_each(0, size(), [&](std::span<const int32_t> ids) {
    most = std::max(most, largest(ids.data(), static_cast<int64_t>(ids.size())));
  });
  about_.vocab_size = int64_t{most} + 1;
  about_.checked = true;
}

void TokenStream::check() {
  if (!about_.checked) for_each(0, size(), [](std::span<const int32_t>) {});
  about_.checked = true;
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
    if (!about_.checked && int64_t{largest(out, n)} >= about_.vocab_size) {
      const auto bad = std::find_if(out, out + n, [&](int32_t id) {
        return int64_t{static_cast<uint32_t>(id)} >= about_.vocab_size;
      });
      throw Error(ExitCode::data,
                  fmt::format("id {} is beyond the vocabulary (0 to {})",
                              static_cast<uint32_t>(*bad), about_.vocab_size - 1),
                  place_of(first + (bad - out)));
    }
    out += n;
    first += n;
    count -= n;
  }
}

std::string TokenStream::place_of(int64_t position) const {
  const size_t segment = segment_of(position);
  return fmt::format("{}, token {}", segments_[segment].name, position - begins_[segment]);
}

void TokenCollector::begin_segment(std::string name) {
  segments_.emplace_back(std::move(name), size());
}

void TokenCollector::add(std::span<const int32_t> ids) {
  if (wide_) {
    tokens32_.insert(tokens32_.end(), ids.begin(), ids.end());
  } else {
    for (const int32_t id : ids) tokens16_.push_back(static_cast<uint16_t>(id));
  }
}

std::shared_ptr<const TokenStream> TokenCollector::finish(
    std::shared_ptr<const Tokenizer> tokenizer) {
  struct Memory {
    std::vector<uint16_t> tokens16;
    std::vector<uint32_t> tokens32;
  };
  const int64_t total = size();
  if (total == 0) {
    throw Error(ExitCode::data, "gives no tokens", segments_.empty() ? "" : segments_[0].first);
  }
  tokens16_.shrink_to_fit();
  tokens32_.shrink_to_fit();
  auto memory = std::make_shared<Memory>(Memory{std::move(tokens16_), std::move(tokens32_)});
  const auto all = wide_ ? std::as_bytes(std::span<const uint32_t>(memory->tokens32))
                         : std::as_bytes(std::span<const uint16_t>(memory->tokens16));
  std::vector<TokenSegment> segments;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const int64_t begin = segments_[i].second;
    const int64_t end = i + 1 < segments_.size() ? segments_[i + 1].second : total;
    if (begin == end) continue;
    segments.push_back({segments_[i].first,
                        all.subspan(static_cast<size_t>(begin * width()),
                                    static_cast<size_t>((end - begin) * width())),
                        width()});
  }
  TokenStream::About about{tokenizer->vocab_size(), tokenizer, /*checked=*/true};
  return std::make_shared<TokenStream>(std::move(segments), std::move(about), std::move(memory));
}

}  // namespace dltrain
