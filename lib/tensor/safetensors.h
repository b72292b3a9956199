// Safetensors files: named dense tensors after a JSON header, readable by the Python package of
// that name. Layout: 8 bytes header length (little-endian), the header, the tensors' bytes.
//
// Reading maps the file, so opening costs nothing per byte of weights and the pages are shared and
// evictable. Nothing in a file is trusted: length, depth and size of the header, names, dtypes,
// shapes and offsets are all checked when the file is opened (tensors must cover the data exactly,
// without gap or overlap), and a refusal names the file and the offset.
//
// Writing streams: the tensors are declared first, then their bytes come in the declared order, in
// pieces of any size. The data begins at a multiple of 64 bytes; the format allows no gaps between
// tensors, so only the first is sure to be aligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "tensor/shape.h"

namespace dltrain {

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsEntry {
  std::string name;
  TensorSpec spec;
  uint64_t begin = 0;  // first byte, counted from the beginning of the data
};

// The header of a file. `entries` are in the order of their data.
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  SafetensorsMetadata metadata;
  uint64_t data_offset = 0;  // of the data, counted from the beginning of the file
};

// Checks and reads the header of a whole file held in memory. `location` is the file's name in
// errors.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& location,
                                    ExitCode on_error);

// An open file. Immutable, so any thread may read it. The spans point into the mapping and live as
// long as the object; they are not aligned (copy, or check before a cast).
class SafetensorsFile {
 public:
  // `on_error`: data for data sets, storage for checkpoints and weights.
  SafetensorsFile(const std::filesystem::path& path, ExitCode on_error);

  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }
  const std::filesystem::path& path() const { return path_; }

  // nullptr when the file has no tensor of this name.
  const SafetensorsEntry* find(std::string_view name) const;
  // Throws the error of this file, with the names that it does have.
  const SafetensorsEntry& at(std::string_view name) const;
  std::span<const std::byte> data(const SafetensorsEntry& entry) const;
  // The first byte of a tensor, counted from the beginning of the file.
  uint64_t offset_of(const SafetensorsEntry& entry) const {
    return header_.data_offset + entry.begin;
  }

 private:
  std::filesystem::path path_;
  ExitCode on_error_;
  MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string_view, size_t> by_name_;
};

struct NamedTensor {
  std::string name;
  TensorSpec spec;
};

class SafetensorsWriter {
 public:
  // Writes the header to `file`, which must be empty and outlive the writer. Names must be unique
  // and not "__metadata__".
  SafetensorsWriter(FileWriter& file, std::vector<NamedTensor> tensors,
                    const SafetensorsMetadata& metadata = {});

  // The next bytes of the current tensor. `name` guards against a wrong order.
  void write(std::string_view name, std::span<const std::byte> bytes);
  // Checks that every declared byte came. Leaves the file open.
  void finish();

 private:
  void skip_complete();

  FileWriter& file_;
  std::vector<NamedTensor> tensors_;
  size_t current_ = 0;
  uint64_t written_ = 0;  // bytes of the current tensor
};

}  // namespace dltrain
