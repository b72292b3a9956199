#include "graph/placement.h"

#include <algorithm>
#include <cstring>

namespace dltrain {
namespace {

// The length of all ranges of a cut dimension but the last.
int64_t range_length(int64_t extent, int ranks) {
  return (extent + ranks - 1) / ranks;
}

// Calls copy(byte of the tensor, byte of the contents, bytes) for each contiguous run of a box.
template <typename Copy>
void for_each_run(const TensorSpec& whole, const TensorBox& box, const Copy& copy) {
  const int rank = whole.shape.rank();
  int inner = rank;  // the dimensions from here on are whole, and so is a run of them
  while (inner > 0 && box.extent[inner - 1] == whole.shape[inner - 1]) --inner;
  const int split = std::max(inner - 1, 0);
  const int64_t inside = whole.shape.elements(std::min(split + 1, rank), rank);
  const int64_t run = rank == 0 ? 1 : box.extent[split] * inside;
  const int64_t runs = box.extent.elements(0, split);
  const size_t element = dtype_size(whole.dtype);
  for (int64_t i = 0; i < runs; ++i) {
    int64_t at = rank == 0 ? 0 : box.offset[split] * inside, left = i;
    int64_t stride = rank == 0 ? 1 : whole.shape[split] * inside;
    for (int d = split - 1; d >= 0; --d) {
      at += (box.offset[d] + left % box.extent[d]) * stride;
      left /= box.extent[d];
      stride *= whole.shape[d];
    }
    copy(static_cast<size_t>(at) * element, static_cast<size_t>(i * run) * element,
         static_cast<size_t>(run) * element);
  }
}

}  // namespace

bool Cut::is_possible(int64_t extent, int ranks) {
  return range_length(extent, ranks) * (ranks - 1) < extent;
}

TensorBox Cut::box(const Shape& whole, int of_rank) const {
  TensorBox out{.offset = whole, .extent = whole};
  for (int d = 0; d < whole.rank(); ++d) out.offset[d] = 0;
  const int64_t extent = whole[dimension], length = range_length(extent, ranks);
  out.offset[dimension] = length * of_rank;
  out.extent[dimension] = std::min(length, extent - length * of_rank);
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

void copy_from_box(const TensorSpec& whole, const TensorBox& box, std::span<const std::byte> tensor,
                   std::span<std::byte> contents) {
  for_each_run(whole, box, [&](size_t from, size_t to, size_t bytes) {
    std::memcpy(contents.data() + to, tensor.data() + from, bytes);
  });
}

void copy_to_box(const TensorSpec& whole, const TensorBox& box, std::span<const std::byte> contents,
                 std::span<std::byte> tensor) {
  for_each_run(whole, box, [&](size_t to, size_t from, size_t bytes) {
    std::memcpy(tensor.data() + to, contents.data() + from, bytes);
  });
}

}  // namespace dltrain
