// The images that a model of a folder expects: preprocessor_config.json of transformers, or
// pretrained_cfg in the config.json of timm.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace dltrain {

struct ImageInput {
  int64_t height = 224, width = 224;
  int64_t resize = 0;  // the shorter side before the middle is cut out; 0: resized to the size
  double scale = 1.0 / 255;
  std::vector<double> mean = {}, std = {};  // of each channel; empty: not normalized

  // Keys of a data section of images, a line each: scale, normalize, and with `transforms` those of
  // evaluations.
  std::string keys(bool transforms) const;
};

// Returns nothing for a folder without such a file, or with a file that is not understood.
std::optional<ImageInput> read_image_input(const std::filesystem::path& folder);
// For that case, return images of the size in config.json, or else of 224 pixels, and a sentence
// that says so.
ImageInput default_image_input(const std::filesystem::path& folder);
std::string no_image_input(const std::filesystem::path& folder);

}  // namespace dltrain
