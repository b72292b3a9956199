// Writing the images of a source into one packed file (data/packed_images.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "data/image_source.h"

namespace dltrain {

struct PrepareOptions {
  std::filesystem::path output = {};
  bool raw = false;  // decode; else files stay as they are
  // With raw: images whose shorter side is longer are shrunk to it.
  std::optional<int64_t> shorter_side = {};
  int threads = 1;
};

struct PrepareReport {
  int64_t images = 0;
  uint64_t bytes = 0;
};

// `progress`: called with the number of images that are done. Throws Error(data) at the first image
// that cannot be decoded, Error(storage) where the file cannot be written; nothing is left behind
// then.
PrepareReport prepare_images(const ImageSource& source, const PrepareOptions& options,
                             const std::function<void(int64_t)>& progress = {});

}  // namespace dltrain
