// A folder with a sub-folder for each class, full of JPEG and PNG files (torchvision's
// ImageFolder). Classes are numbered in the order of their names; files are in the order of their
// paths. Files of other endings are passed over, with one warning that counts them; names that
// begin with a dot are not even counted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/image_source.h"

namespace dltrain {

struct ImageFolderOptions {
  std::string path = {};
  int64_t channels = 3;
  // false: images are looked at when they are read, and a broken one is an error then. true: every
  // image is decoded once here, by `threads`, and broken ones are left out, with a warning each.
  bool skip_broken = false;
  // true: the files anywhere below `path`, without classes; labels are kIgnoredLabel.
  bool untargeted = false;
  int threads = 1;
};

// Throws Error(data) for a folder without classes, a class without images, and where all are
// broken.
std::shared_ptr<const ImageSource> open_image_folder(const ImageFolderOptions& options);

}  // namespace dltrain
