// Common keys of layers over images: pairs (height, width), or one number for both.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/fields.h"

namespace dltrain {

// Returns both values; one value means both axes.
inline std::vector<int64_t> both(const std::vector<int64_t>& values) {
  return values.size() == 1 ? std::vector<int64_t>{values[0], values[0]} : values;
}

inline Key pair_key(std::string doc, double least) {
  return {.doc = std::move(doc) + " (height, width; one number for both)",
          .min = least,
          .max = 1024,
          .min_size = 1,
          .max_size = 2,
          .scalar_ok = true};
}

}  // namespace dltrain
