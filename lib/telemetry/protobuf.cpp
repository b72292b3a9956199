#include "telemetry/protobuf.h"

namespace dltrain {
namespace {

enum WireType { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

template <typename T>
void append_raw(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
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

}  // namespace dltrain
