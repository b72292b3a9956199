// A file that is built into the program (cmake/model_files.cmake).
#pragma once

#include <string_view>

namespace dltrain {

struct EmbeddedFile {
  std::string_view name;  // without folder and extension: "resnet18"
  std::string_view text;
};

}  // namespace dltrain
