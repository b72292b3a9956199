// Writes the images of a source to one packed file (data/packed_images.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "data/image_source.h"

namespace dltrain {

struct PrepareOptions {
  std::filesystem::path output = {};
  bool raw = false;  // store decoded pixels instead of the files
  // With raw: the maximum length of an image's shorter side; larger images are shrunk.
  std::optional<int64_t> shorter_side = {};
  int threads = 1;
};

// Calls `progress` with the number of finished images. Throws Error(data) at the first image that
// cannot be decoded and Error(storage) if the file cannot be written; no file remains then. Returns
// the bytes of the file.
uint64_t prepare_images(const ImageSource& source, const PrepareOptions& options,
                        const std::function<void(int64_t)>& progress = {});

}  // namespace dltrain
