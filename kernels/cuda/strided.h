// Index arithmetic of broadcast operands: the output is dense; an operand is broadcast along axes
// with stride 0. Plain data, passed to kernels by value.
#pragma once

#include <cstdint>

namespace dltrain {

struct StridedLayout {
  static constexpr int kMaxRank = 6;
  int rank = 0;
  int64_t extent[kMaxRank] = {};     // of the output, outermost first, adjacent axes merged
  int64_t stride[2][kMaxRank] = {};  // in elements, of operand a and b
};

}  // namespace dltrain
