// The bytes of a file in order, plain or compressed with gzip (told by its content, not its name):
// neither the size of the file nor that of a hostile archive costs memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace dltrain {

// Reads up to so many bytes; 0 at the end. Throws Error(data) for damaged or cut archives and read
// errors.
using ByteSource = std::function<size_t(std::span<char>)>;

// Throws Error(data) when the file cannot be opened or is no regular file.
ByteSource open_bytes(const std::string& path);
// Bytes in memory of the caller.
ByteSource bytes_of(std::string_view text);

// Reads a format of known sizes.
class ByteReader {
 public:
  // `name`: in errors.
  ByteReader(std::string name, ByteSource source)
      : name_(std::move(name)), read_(std::move(source)) {}

  // Fills `out`; `what` is said where the file ends before. Throws Error(data) with the offset.
  void read(std::span<uint8_t> out, std::string_view what);
  void skip(uint64_t bytes, std::string_view what);
  // Throws Error(data) unless the file ends here; `what` is the source of the length.
  void expect_end(std::string_view what);

  const std::string& name() const { return name_; }
  uint64_t offset() const { return offset_; }

 private:
  std::string name_;
  ByteSource read_;
  uint64_t offset_ = 0;
};

}  // namespace dltrain
