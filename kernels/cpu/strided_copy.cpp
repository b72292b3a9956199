#include "cpu/strided_copy.h"

#include <cstring>

#include "base/error.h"
#include "cpu/parallel.h"

namespace dltrain {

std::vector<int64_t> dense_strides(const Shape& shape) {
  std::vector<int64_t> strides(static_cast<size_t>(shape.rank()));
  for (int i = 0; i < shape.rank(); ++i) {
    strides[static_cast<size_t>(i)] = shape.elements(i + 1, shape.rank());
  }
  return strides;
}

StridedBox::StridedBox(const std::vector<int64_t>& extents,
                       const std::vector<int64_t>& from_strides,
                       const std::vector<int64_t>& to_strides) {
  for (size_t i = extents.size(); i-- > 0;) {
    const Axis axis{extents[i], from_strides[i], to_strides[i]};
    if (axis.extent == 1) continue;
    Axis* inner = axes_.empty() ? nullptr : &axes_.back();
    if (inner != nullptr && axis.from == inner->from * inner->extent &&
        axis.to == inner->to * inner->extent) {
      inner->extent *= axis.extent;
    } else {
      axes_.push_back(axis);
    }
  }
  if (axes_.empty()) axes_.push_back({1, 1, 1});
}

StridedCopy::StridedCopy(const StridedBox& box, size_t element_bytes) {
  const auto bytes = static_cast<int64_t>(element_bytes);
  const StridedBox::Axis& row = box.axes().front();
  // A box with rows of one element is dense too: its innermost axis has extent 1.
  const bool dense = row.from == 1 && row.to == 1;
  row_bytes_ = dense ? row.extent * bytes : bytes;
  for (size_t i = dense ? 1 : 0; i < box.axes().size(); ++i) {
    const StridedBox::Axis& axis = box.axes()[i];
    outer_.push_back({axis.extent, axis.from * bytes, axis.to * bytes});
    rows_ *= axis.extent;
  }
}

void StridedCopy::run(const void* from, void* to) const {
  const int64_t grain = std::max<int64_t>(1, 16384 / row_bytes_);
  parallel_each(rows_, grain, [&](int64_t row) {
    const auto* source = static_cast<const std::byte*>(from);
    auto* target = static_cast<std::byte*>(to);
    int64_t rest = row;
    for (const StridedBox::Axis& axis : outer_) {
      const int64_t at = rest % axis.extent;
      rest /= axis.extent;
      source += at * axis.from;
      target += at * axis.to;
    }
    std::memcpy(target, source, static_cast<size_t>(row_bytes_));
  });
}

}  // namespace dltrain
