#include "telemetry/protobuf.h"

#include <cstring>

namespace dltrain {
namespace {

enum WireType { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

template <typename T>
void append_raw(std::string& bytes, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  bytes.append(raw, sizeof(T));
}

// Takes a varint from the front of `bytes`.
std::optional<uint64_t> take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  return std::nullopt;
}

}  // namespace

void ProtobufMessage::varint(uint64_t value) {
  while (value >= 0x80) {
    bytes_ += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  bytes_ += static_cast<char>(value);
}

void ProtobufMessage::key(int field, int wire_type) {
  varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type));
}

ProtobufMessage& ProtobufMessage::integer(int field, int64_t value) {
  key(field, kVarint);
  varint(static_cast<uint64_t>(value));
  return *this;
}

ProtobufMessage& ProtobufMessage::number(int field, double value) {
  key(field, kFixed64);
  append_raw(bytes_, value);
  return *this;
}

ProtobufMessage& ProtobufMessage::number32(int field, float value) {
  key(field, kFixed32);
  append_raw(bytes_, value);
  return *this;
}

ProtobufMessage& ProtobufMessage::text(int field, std::string_view bytes) {
  key(field, kLength);
  varint(bytes.size());
  bytes_ += bytes;
  return *this;
}

ProtobufMessage& ProtobufMessage::packed(int field, std::span<const double> values) {
  key(field, kLength);
  varint(values.size() * sizeof(double));
  for (double value : values) append_raw(bytes_, value);
  return *this;
}

std::optional<int64_t> find_integer(std::string_view message, int field) {
  while (!message.empty()) {
    const auto key = take_varint(message);
    if (!key) return std::nullopt;
    size_t skip = 0;
    switch (*key & 7) {
      case kVarint: {
        const auto value = take_varint(message);
        if (!value) return std::nullopt;
        if (*key >> 3 == static_cast<uint64_t>(field)) return static_cast<int64_t>(*value);
        continue;
      }
      case kFixed64:
        skip = 8;
        break;
      case kFixed32:
        skip = 4;
        break;
      case kLength: {
        const auto length = take_varint(message);
        if (!length || *length > message.size()) return std::nullopt;
        skip = *length;
        break;
      }
      default:
        return std::nullopt;
    }
    if (skip > message.size()) return std::nullopt;
    message.remove_prefix(skip);
  }
  return std::nullopt;
}

}  // namespace dltrain
