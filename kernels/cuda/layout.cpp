// Kernels of slice, pad, concat and transpose, of any dtype.
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "cuda/makers.h"
#include "cuda/strided_copy.h"
#include "shared/make_kernel.h"
#include "tensor/low_precision.h"

namespace dltrain {
namespace {

static_assert(StridedCopy::kMaxRank >= Shape::kMaxRank);

// Returns the copy of a dense tensor to one of the same shape, for callers to modify.
StridedCopy copy_of(const Shape& shape, DType dtype) {
  StridedCopy copy;
  copy.element_bytes = static_cast<int>(dtype_size(dtype));
  copy.rank = shape.rank();
  for (int i = 0; i < shape.rank(); ++i) {
    copy.extent[i] = shape[i];
    copy.x_stride[i] = copy.y_stride[i] = shape.elements(i + 1, shape.rank());
  }
  return copy;
}

// Sets strides and start of the box within the tensor of shape `whole`.
void lie_in(const Shape& whole, const std::vector<int64_t>& before, int64_t* stride,
            int64_t& start) {
  for (int i = 0; i < whole.rank(); ++i) {
    stride[i] = whole.elements(i + 1, whole.rank());
    start += before[static_cast<size_t>(i)] * stride[i];
  }
}

// Returns the memory representation of a number.
uint64_t bits_of(double value, DType dtype) {
  const auto narrow = [&](auto to) {
    from_f32(static_cast<float>(value), to);
    return uint64_t{to.bits};
  };
  switch (dtype) {
    case DType::f64:
      return std::bit_cast<uint64_t>(value);
    case DType::f32:
      return std::bit_cast<uint32_t>(static_cast<float>(value));
    case DType::bf16:
      return narrow(Bf16{});
    case DType::f16:
      return narrow(F16{});
    default:
      return static_cast<uint64_t>(static_cast<int64_t>(value));
  }
}

// Copies each input to its place in the output, which is first filled with `fill` if given.
std::unique_ptr<Kernel> make_layout_kernel(std::vector<StridedCopy> copies, const TensorSpec& y,
                                           std::optional<double> fill = {}) {
  for (StridedCopy& copy : copies) copy = simplified(copy);
  const uint64_t bits = fill ? bits_of(*fill, y.dtype) : 0;
  const int64_t filled = fill ? y.shape.elements() : 0;
  const int bytes = static_cast<int>(dtype_size(y.dtype));
  return make_kernel([=](const Bindings& b, Stream& stream) {
    launch_fill(bytes, bits, b.outputs[0], filled, stream.native());
    for (size_t i = 0; i < copies.size(); ++i) {
      launch_strided_copy(copies[i], b.inputs[i], b.outputs[0], stream.native());
    }
  });
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_slice(const KernelRequest& request) {
  const TensorSpec &x = request.inputs[0], &y = request.outputs[0];
  StridedCopy copy = copy_of(y.shape, y.dtype);
  lie_in(x.shape, request.attributes.integers("before"), copy.x_stride, copy.x_start);
  return make_layout_kernel({copy}, y);
}

std::unique_ptr<Kernel> make_cuda_pad(const KernelRequest& request) {
  const TensorSpec &x = request.inputs[0], &y = request.outputs[0];
  StridedCopy copy = copy_of(x.shape, x.dtype);
  lie_in(y.shape, request.attributes.integers("before"), copy.y_stride, copy.y_start);
  return make_layout_kernel({copy}, y, request.attributes.number("value"));
}

std::unique_ptr<Kernel> make_cuda_concat(const KernelRequest& request) {
  const TensorSpec& y = request.outputs[0];
  const auto axis = static_cast<size_t>(request.attributes.integer("axis"));
  std::vector<int64_t> before(static_cast<size_t>(y.shape.rank()), 0);
  std::vector<StridedCopy> copies;
  for (const TensorSpec& x : request.inputs) {
    copies.push_back(copy_of(x.shape, x.dtype));
    lie_in(y.shape, before, copies.back().y_stride, copies.back().y_start);
    before[axis] += x.shape[static_cast<int>(axis)];
  }
  return make_layout_kernel(std::move(copies), y);
}

std::unique_ptr<Kernel> make_cuda_transpose(const KernelRequest& request) {
  const TensorSpec &x = request.inputs[0], &y = request.outputs[0];
  const auto permutation = request.attributes.integers("permutation");
  StridedCopy copy = copy_of(y.shape, y.dtype);
  for (int i = 0; i < y.shape.rank(); ++i) {
    const int axis = static_cast<int>(permutation[static_cast<size_t>(i)]);
    copy.x_stride[i] = x.shape.elements(axis + 1, x.shape.rank());
  }
  return make_layout_kernel({copy}, y);
}

}  // namespace dltrain
