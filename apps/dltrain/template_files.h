// The files of configs/templates, which `dltrain init` writes. The first sentence of each says what
// it is.
#pragma once

#include <span>

#include "base/embedded_file.h"

namespace dltrain {

std::span<const EmbeddedFile> template_files();  // by name

}  // namespace dltrain
