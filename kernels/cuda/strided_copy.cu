// Copies of boxes: one thread per element of up to 16 bytes, in the order of y's memory if y is
// dense.
#include "cuda/device_code.cuh"
#include "cuda/strided_copy.h"

namespace dltrain {
namespace {

constexpr int kBlock = 256;

template <typename E, typename Index>
__global__ void strided_copy_kernel(StridedCopy copy, const E* x, E* y, Index count) {
  const Index step = static_cast<Index>(thread_count());
  for (Index i = static_cast<Index>(thread_index()); i < count; i += step) {
    Index rest = i;
    int64_t from = copy.x_start, to = copy.y_start;
    for (int axis = copy.rank - 1; axis >= 0; --axis) {
      const Index extent = static_cast<Index>(copy.extent[axis]);
      const int64_t index = static_cast<int64_t>(rest % extent);
      rest /= extent;
      from += index * copy.x_stride[axis];
      to += index * copy.y_stride[axis];
    }
    y[to] = x[from];
  }
}

template <typename E>
__global__ void fill_kernel(E value, E* y, int64_t count) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) y[i] = value;
}

template <typename E>
void copy_typed(const StridedCopy& copy, const void* x, void* y, CudaStream stream) {
  const int64_t count = copy.count();
  const E* from = static_cast<const E*>(x);
  E* to = static_cast<E*>(y);
  // The index of the last loop step must stay below 2³².
  if (count < (int64_t{1} << 31)) {
    DLTRAIN_LAUNCH((strided_copy_kernel<E, uint32_t>), stride_grid(count, kBlock), kBlock, stream,
                   copy, from, to, static_cast<uint32_t>(count));
  } else {
    DLTRAIN_LAUNCH((strided_copy_kernel<E, uint64_t>), stride_grid(count, kBlock), kBlock, stream,
                   copy, from, to, static_cast<uint64_t>(count));
  }
}

bool can_join(const StridedCopy& c, int outer, int inner) {
  return c.x_stride[outer] == c.x_stride[inner] * c.extent[inner] &&
         c.y_stride[outer] == c.y_stride[inner] * c.extent[inner];
}

// Returns true if two elements can be copied as one: dense last axes, all other strides even.
bool can_widen(const StridedCopy& c) {
  const int last = c.rank - 1;
  if (c.element_bytes == 16 || c.rank == 0 || c.x_stride[last] != 1 || c.y_stride[last] != 1) {
    return false;
  }
  bool even = c.extent[last] % 2 == 0 && c.x_start % 2 == 0 && c.y_start % 2 == 0;
  for (int i = 0; i < last; ++i) {
    even = even && c.x_stride[i] % 2 == 0 && c.y_stride[i] % 2 == 0;
  }
  return even;
}

}  // namespace

StridedCopy simplified(const StridedCopy& copy) {
  StridedCopy out = copy;
  out.rank = 0;
  for (int i = 0; i < copy.rank; ++i) {
    if (copy.extent[i] == 1) continue;
    const int at = out.rank++;
    out.extent[at] = copy.extent[i];
    out.x_stride[at] = copy.x_stride[i];
    out.y_stride[at] = copy.y_stride[i];
    if (at > 0 && can_join(out, at - 1, at)) {
      out.extent[at - 1] *= out.extent[at];
      out.x_stride[at - 1] = out.x_stride[at];
      out.y_stride[at - 1] = out.y_stride[at];
      --out.rank;
    }
  }
  while (can_widen(out)) {
    const int last = out.rank - 1;
    out.element_bytes *= 2;
    out.extent[last] /= 2;
    out.x_start /= 2;
    out.y_start /= 2;
    for (int i = 0; i < last; ++i) {
      out.x_stride[i] /= 2;
      out.y_stride[i] /= 2;
    }
  }
  return out;
}

void launch_strided_copy(StridedCopy copy, const void* x, void* y, CudaStream stream) {
  if (copy.count() == 0) return;
  const uintptr_t both = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y);
  while (both % static_cast<uintptr_t>(copy.element_bytes) != 0) {
    // Halves of the elements, which can_widen has joined.
    copy.element_bytes /= 2;
    copy.extent[copy.rank - 1] *= 2;
    copy.x_start *= 2;
    copy.y_start *= 2;
    for (int i = 0; i + 1 < copy.rank; ++i) {
      copy.x_stride[i] *= 2;
      copy.y_stride[i] *= 2;
    }
  }
  switch (copy.element_bytes) {
    case 1:
      return copy_typed<uint8_t>(copy, x, y, stream);
    case 2:
      return copy_typed<uint16_t>(copy, x, y, stream);
    case 4:
      return copy_typed<uint32_t>(copy, x, y, stream);
    case 8:
      return copy_typed<uint64_t>(copy, x, y, stream);
    default:
      return copy_typed<Pack<uint64_t>>(copy, x, y, stream);
  }
}

void launch_fill(int element_bytes, uint64_t bits, void* y, int64_t count, CudaStream stream) {
  if (count == 0) return;
  const auto fill = [&](auto value) {
    using E = decltype(value);
    DLTRAIN_LAUNCH(fill_kernel<E>, stride_grid(count, kBlock), kBlock, stream, value,
                   static_cast<E*>(y), count);
  };
  switch (element_bytes) {
    case 1:
      return fill(static_cast<uint8_t>(bits));
    case 2:
      return fill(static_cast<uint16_t>(bits));
    case 4:
      return fill(static_cast<uint32_t>(bits));
    default:
      return fill(bits);
  }
}

}  // namespace dltrain
