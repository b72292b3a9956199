// The part of the protocol buffers wire format that event files need: building a message.
//
// Source: protobuf.dev/programming-guides/encoding. Integers of floating and fixed fields are
// little-endian, as on all machines that this program runs on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace dltrain {

class ProtobufMessage {
 public:
  ProtobufMessage& integer(int field, int64_t value);
  ProtobufMessage& number(int field, double value);
  ProtobufMessage& number32(int field, float value);
  ProtobufMessage& text(int field, std::string_view bytes);
  ProtobufMessage& message(int field, const ProtobufMessage& value) {
    return text(field, value.bytes());
  }
  ProtobufMessage& packed(int field, std::span<const double> values);

  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int wire_type);
  void varint(uint64_t value);

  std::string bytes_;
};

}  // namespace dltrain
