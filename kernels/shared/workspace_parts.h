// Divides a kernel's workspace into consecutive parts, each aligned to 256 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace dltrain {

class WorkspaceParts {
 public:
  // Adds a part; returns its offset.
  size_t add(size_t bytes) {
    const size_t at = total_;
    total_ += (bytes + 255) / 256 * 256;
    return at;
  }
  size_t add(int64_t elements, DType dtype) {
    return add(static_cast<size_t>(elements) * dtype_size(dtype));
  }
  size_t total() const { return total_; }

 private:
  size_t total_ = 0;
};

}  // namespace dltrain
