// A folder with a sub-folder of JPEG and PNG files for each class (torchvision's ImageFolder).
// Classes are sorted by name, files by path. Files of other endings are skipped with one warning;
// names that begin with a dot are ignored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "data/image_source.h"

namespace dltrain {

struct ImageFolderOptions {
  std::string path = {};
  int64_t channels = 3;
  // Takes the files anywhere below `path`, without classes; labels are kIgnoredLabel.
  bool untargeted = false;
};

// Returns whether the name has the ending of an image that is read.
bool is_image_name(const std::filesystem::path& path);

// Throws Error(data) for a folder without classes and a class without images. Files are read later.
std::shared_ptr<const ImageSource> open_image_folder(const ImageFolderOptions& options);

}  // namespace dltrain
