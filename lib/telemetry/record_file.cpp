#include "telemetry/record_file.h"

#include <array>
#include <cstring>

namespace dltrain {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82F63B78;
constexpr uint32_t kMaskDelta = 0xA282EAD8;

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

constexpr size_t kLengthBytes = 8, kCrcBytes = 4;

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

template <typename T>
T from_raw(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xFF];
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + kMaskDelta;
}

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
