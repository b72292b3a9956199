#include "data/tar.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace dltrain {
namespace {

constexpr size_t kTarBlock = 512;
constexpr uint64_t kMaxSize = uint64_t{1} << 40;

// Reads octal digits that end at a space or a zero byte.
std::optional<uint64_t> octal(const uint8_t* digits, size_t n) {
  uint64_t value = 0;
  size_t i = 0;
  while (i < n && digits[i] == ' ') ++i;
  if (i == n) return std::nullopt;
  for (; i < n && digits[i] != 0 && digits[i] != ' '; ++i) {
    if (digits[i] < '0' || digits[i] > '7') return std::nullopt;
    value = value * 8 + (digits[i] - '0');
  }
  return value;
}

std::string text(const uint8_t* from, size_t n) {
  const auto* chars = reinterpret_cast<const char*>(from);
  return {chars, ::strnlen(chars, n)};
}

// The checksum is the sum of all bytes, with spaces in place of its own bytes.
bool checksum_fits(const uint8_t (&block)[kTarBlock]) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kTarBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : block[i];
  return octal(block + 148, 8) == sum;
}

}  // namespace

std::optional<TarReader::Entry> TarReader::next() {
  while (true) {
    bytes_.skip(left_ + padding_, "a file of the archive");
    left_ = padding_ = 0;
    uint8_t block[kTarBlock];
    bytes_.read(block, "the tar archive");
    if (std::all_of(block, block + kTarBlock, [](uint8_t b) { return b == 0; }))
      return std::nullopt;
    const auto size = octal(block + 124, 12);
    if (!checksum_fits(block) || !size || *size > kMaxSize) {
      throw Error(ExitCode::data, "is not a tar archive, or is damaged",
                  fmt::format("{} (offset {})", bytes_.name(), bytes_.offset() - kTarBlock));
    }
    left_ = *size;
    padding_ = (kTarBlock - *size % kTarBlock) % kTarBlock;
    const uint8_t kind = block[156];
    if (kind != '0' && kind != 0) continue;  // folders, links, extended headers
    std::string name = text(block, 100);
    const std::string prefix = text(block + 345, 155);
    if (std::memcmp(block + 257, "ustar", 5) == 0 && block[262] == 0 && !prefix.empty()) {
      name = prefix + "/" + name;
    }
    return Entry{std::move(name), *size};
  }
}

void TarReader::read(std::span<uint8_t> out) {
  check_internal(out.size() <= left_, "reading {} of {} bytes", out.size(), left_);
  bytes_.read(out, "a file of the archive");
  left_ -= out.size();
}

}  // namespace dltrain
