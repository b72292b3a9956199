// Reads the bytes of a file sequentially, plain or gzip (recognised by its content): the memory
// does not depend on the size of the file or of the decompressed data.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace dltrain {

// Fills a part of the span and returns its size; 0 at the end. Throws Error(data) for damaged or
// truncated archives and read errors.
using ByteSource = std::function<size_t(std::span<char>)>;

// Throws Error(data) if the file cannot be opened or is not a regular file.
ByteSource open_bytes(const std::string& path);
// Reads bytes in memory of the caller.
ByteSource bytes_of(std::string_view text);

// Reads fields of known sizes.
class ByteReader {
 public:
  // `name`: in errors.
  ByteReader(std::string name, ByteSource source)
      : name_(std::move(name)), read_(std::move(source)) {}

  // Fills `out`. Throws Error(data) with the offset if the file ends earlier; `what` is the name of
  // the field.
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
