// The files of configs/templates, which `dltrain init` writes. The first sentence of each says what
// it is.
#pragma once

#include <span>
#include <string_view>

namespace dltrain {

struct TemplateFile {
  std::string_view name;  // "mlp"
  std::string_view text;
};
std::span<const TemplateFile> template_files();  // by name

}  // namespace dltrain
