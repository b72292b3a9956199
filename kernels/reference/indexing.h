// Index arithmetic of ops that broadcast axes or map images; deliberately simple and slow.
#pragma once

#include "ops/image_maps.h"
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

// Calls f(input, weight) for the entries of one output of a map.
template <typename F>
void visit(const AxisMap& map, int64_t output, const F& f) {
  const auto o = static_cast<size_t>(output);
  for (auto e = static_cast<size_t>(map.begin[o]); e < static_cast<size_t>(map.begin[o + 1]); ++e) {
    f(map.index[e], map.weight[e]);
  }
}

}  // namespace dltrain
