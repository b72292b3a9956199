// Index arithmetic of ops that broadcast or reduce axes; deliberately simple and slow.
#pragma once

#include "tensor/shape.h"

namespace dltrain {

// Returns the element of a tensor of shape `x` that is broadcast to element `i` of `y`.
inline int64_t broadcast_index(int64_t i, const Shape& y, const Shape& x) {
  if (x == y) return i;
  int64_t out = 0, stride = 1;
  for (int axis = 1; axis <= y.rank(); ++axis) {  // from the innermost
    const int64_t at = i % y[-axis];
    i /= y[-axis];
    if (axis > x.rank()) continue;
    if (x[-axis] != 1) out += at * stride;
    stride *= x[-axis];
  }
  return out;
}

}  // namespace dltrain
