// concat, slice and pad: copies of boxes, row by row. Any dtype.
#include <algorithm>
#include <utility>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/strided_copy.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

// Returns the first element of a box with these leading borders in a dense tensor.
int64_t corner(const Shape& shape, const std::vector<int64_t>& before) {
  const auto strides = dense_strides(shape);
  int64_t at = 0;
  for (size_t i = 0; i < before.size(); ++i) at += before[i] * strides[i];
  return at;
}

// Fills the entire output first: borders are small and their shape is complicated.
template <typename T>
std::unique_ptr<Kernel> make_pad_of(const KernelRequest& r) {
  const TensorSpec &x = r.inputs[0], &y = r.outputs[0];
  const StridedCopy copy(StridedBox(x.shape.list(), dense_strides(x.shape), dense_strides(y.shape)),
                         sizeof(T));
  const int64_t offset = corner(y.shape, r.attributes.integers("before"));
  const int64_t count = y.shape.elements();
  const auto value = static_cast<T>(r.attributes.number("value"));
  return make_kernel([=](const Bindings& bindings, Stream&) {
    T* to = bindings.output<T>(0);
    parallel_for(count, 16384,
                 [&](int64_t begin, int64_t end) { std::fill(to + begin, to + end, value); });
    copy.run(bindings.inputs[0], to + offset);
  });
}

}  // namespace

std::unique_ptr<Kernel> make_concat(const KernelRequest& request) {
  struct Part {
    StridedCopy copy;
    int64_t offset;  // in the output, bytes
  };
  const Shape& y = request.outputs[0].shape;
  const auto axis = static_cast<int>(request.attributes.integer("axis"));
  const size_t bytes = dtype_size(request.outputs[0].dtype);
  const int64_t row_bytes = y.elements(axis + 1, y.rank()) * static_cast<int64_t>(bytes);
  std::vector<Part> parts;
  int64_t begin = 0;
  for (const TensorSpec& x : request.inputs) {
    const StridedBox box(x.shape.list(), dense_strides(x.shape), dense_strides(y));
    parts.push_back({StridedCopy(box, bytes), begin * row_bytes});
    begin += x.shape[axis];
  }
  return make_kernel([parts = std::move(parts)](const Bindings& b, Stream&) {
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].copy.run(b.inputs[i], b.output<std::byte>(0) + parts[i].offset);
    }
  });
}

std::unique_ptr<Kernel> make_slice(const KernelRequest& request) {
  const TensorSpec &x = request.inputs[0], &y = request.outputs[0];
  const StridedCopy copy(StridedBox(y.shape.list(), dense_strides(x.shape), dense_strides(y.shape)),
                         dtype_size(x.dtype));
  const int64_t offset = corner(x.shape, request.attributes.integers("before")) *
                         static_cast<int64_t>(dtype_size(x.dtype));
  return make_kernel(
      [=](const Bindings& b, Stream&) { copy.run(b.input<std::byte>(0) + offset, b.outputs[0]); });
}

std::unique_ptr<Kernel> make_pad(const KernelRequest& request) {
  switch (request.inputs[0].dtype) {
    case DType::f32:
      return make_pad_of<float>(request);
    case DType::f64:
      return make_pad_of<double>(request);
    case DType::i32:
      return make_pad_of<int32_t>(request);
    default:
      return nullptr;
  }
}

}  // namespace dltrain
