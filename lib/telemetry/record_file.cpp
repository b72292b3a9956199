#include "telemetry/record_file.h"

#include <cstdint>
#include <cstring>

#include "telemetry/crc32c.h"

namespace dltrain {
namespace {

constexpr size_t kLengthBytes = 8, kCrcBytes = 4;

template <typename T>
std::string raw(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

template <typename T>
T from_raw(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

}  // namespace

std::string framed_record(std::string_view bytes) {
  const std::string length = raw(static_cast<uint64_t>(bytes.size()));
  std::string out = length + raw(masked_crc32c(length));
  out += bytes;
  return out + raw(masked_crc32c(bytes));
}

std::vector<Record> read_records(std::string_view file) {
  std::vector<Record> out;
  size_t at = 0;
  while (file.size() - at >= kLengthBytes + 2 * kCrcBytes) {
    const std::string_view length = file.substr(at, kLengthBytes);
    if (from_raw<uint32_t>(file.substr(at + kLengthBytes)) != masked_crc32c(length)) break;
    const auto size = from_raw<uint64_t>(length);
    const size_t begin = at + kLengthBytes + kCrcBytes;
    if (size > file.size() - begin - kCrcBytes) break;
    const std::string_view bytes = file.substr(begin, size);
    if (from_raw<uint32_t>(file.substr(begin + size)) != masked_crc32c(bytes)) break;
    at = begin + size + kCrcBytes;
    out.push_back({bytes, at});
  }
  return out;
}

}  // namespace dltrain
