// Packed images: a whole data set in one file that is mapped into memory, written by `dltrain data
// prepare`. docs/formats.md has the layout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/image_source.h"

namespace dltrain {

// Whether a file begins as such a file does.
bool is_packed_images(const std::filesystem::path& path);

// Maps a file and checks its directory: sizes, checksum, every entry. The images' own checksum is
// compared where `check_data` asks for it, which reads all of them. Throws Error(data).
std::shared_ptr<const ImageSource> open_packed_images(const std::filesystem::path& path,
                                                      bool check_data = false);

// Writes such a file from front to back. What is there under the name is replaced at finish() only.
class PackedImagesWriter {
 public:
  // `channels`: 1 or more, of all images. Throws Error(storage).
  PackedImagesWriter(const std::filesystem::path& path, int64_t channels,
                     std::vector<std::string> class_names);
  ~PackedImagesWriter();

  void add(const StoredImage& image, int32_t label);
  // Bytes of the file.
  uint64_t finish();

 private:
  std::filesystem::path path_, partial_;
  int64_t channels_;
  std::vector<std::string> class_names_;
  FileWriter file_;
  Hasher data_hash_;
  std::string index_;  // as it will stand in the file
  int64_t samples_ = 0;
  bool finished_ = false;
};

}  // namespace dltrain
