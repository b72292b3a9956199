#include "cpu/broadcast_loop.h"

namespace dltrain {

BroadcastLoop::BroadcastLoop(const Shape& output, std::span<const Shape> operands) {
  // Strides of every axis, innermost first; 0 where the operand repeats.
  std::array<int64_t, kMaxOperands> dense{1, 1};
  std::vector<Axis> all;
  for (int back = 1; back <= output.rank(); ++back) {
    Axis axis{output[-back], {}};
    for (size_t i = 0; i < operands.size(); ++i) {
      const bool present = back <= operands[i].rank() && operands[i][-back] != 1;
      axis.strides[i] = present ? dense[i] : 0;
      if (present) dense[i] *= axis.extent;
    }
    if (axis.extent != 1) all.push_back(axis);
  }
  if (all.empty()) all.push_back({1, {1, 1}});
  // An axis merges with the next inner one if every operand is contiguous, or broadcast, in both.
  std::vector<Axis> merged{all[0]};
  for (size_t k = 1; k < all.size(); ++k) {
    Axis& inner = merged.back();
    bool alike = true;
    for (size_t i = 0; i < operands.size(); ++i) {
      alike = alike && all[k].strides[i] == inner.strides[i] * inner.extent;
    }
    if (alike) {
      inner.extent *= all[k].extent;
    } else {
      merged.push_back(all[k]);
    }
  }
  length_ = merged[0].extent;
  inner_stride_ = merged[0].strides;
  axes_.assign(merged.begin() + 1, merged.end());
  for (const Axis& axis : axes_) rows_ *= axis.extent;
}

}  // namespace dltrain
