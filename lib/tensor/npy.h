// Arrays of NumPy's .npy format, versions 1 to 3: little-endian, in C order.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/file.h"
#include "tensor/shape.h"

namespace dltrain {

// The header and the offset of the elements.
struct NpyHeader {
  TensorSpec spec;
  size_t data_offset = 0;
};

// Throws Error(on_error) without a place for invalid files, for unsupported element types and
// orders, and if the elements do not fill the rest of `file` exactly.
NpyHeader parse_npy(std::span<const std::byte> file, ExitCode on_error);

// A file, mapped.
class NpyFile {
 public:
  NpyFile(const std::filesystem::path& path, ExitCode on_error);

  const TensorSpec& spec() const { return header_.spec; }
  std::span<const std::byte> data() const { return file_.bytes().subspan(header_.data_offset); }

 private:
  MappedFile file_;
  NpyHeader header_;
};

}  // namespace dltrain
