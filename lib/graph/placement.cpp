#include "graph/placement.h"

#include <algorithm>
#include <cstring>

namespace dltrain {
namespace {

// Calls copy(byte of the tensor, byte of the shard, bytes) for each contiguous run of a shard.
template <typename Copy>
void for_each_run(const TensorSpec& whole, const Cut& cut, int rank, const Copy& copy) {
  const int64_t outer = whole.shape.elements(0, cut.dimension);
  const size_t inner =
      static_cast<size_t>(whole.shape.elements(cut.dimension + 1, whole.shape.rank())) *
      dtype_size(whole.dtype);
  size_t at = 0;
  for (int64_t i = 0; i < outer; ++i) {
    for (const CutRange& range : cut_ranges(cut.parts, rank)) {
      const auto first = static_cast<size_t>(i * whole.shape[cut.dimension] + range.offset);
      const size_t bytes = static_cast<size_t>(range.extent) * inner;
      copy(first * inner, at, bytes);
      at += bytes;
    }
  }
}

}  // namespace

Shape Cut::local(const Shape& whole, int of_rank) const {
  Shape out = whole;
  out[dimension] = cut_extent(parts, of_rank);
  return out;
}

FlatCut::Range FlatCut::range(int64_t elements) const {
  const int64_t from = rank * length;
  const int64_t begin = std::clamp<int64_t>(from - first, 0, elements);
  const int64_t end = std::clamp<int64_t>(from + length - first, 0, elements);
  return {begin, end - begin, end > begin ? first + begin - from : 0};
}

FlatCut::Range Shard::range() const {
  if (!is_here) return {};
  const int64_t elements = box().shape.elements();
  return flat ? flat->range(elements) : FlatCut::Range{0, elements, 0};
}

TensorSpec Shard::stored() const {
  return flat || !is_here ? TensorSpec{Shape{range().count}, whole.dtype} : box();
}

void copy_from_cut(const TensorSpec& whole, const Cut& cut, int rank,
                   std::span<const std::byte> tensor, std::span<std::byte> shard) {
  for_each_run(whole, cut, rank, [&](size_t from, size_t to, size_t bytes) {
    std::memcpy(shard.data() + to, tensor.data() + from, bytes);
  });
}

void copy_to_cut(const TensorSpec& whole, const Cut& cut, int rank,
                 std::span<const std::byte> shard, std::span<std::byte> tensor) {
  for_each_run(whole, cut, rank, [&](size_t to, size_t from, size_t bytes) {
    std::memcpy(tensor.data() + to, shard.data() + from, bytes);
  });
}

}  // namespace dltrain
