// concat, slice and pad: boxes copied row by row. Any dtype.
#include <algorithm>
#include <cstring>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/strided_copy.h"
#include "cpu/support.h"

namespace dltrain {
namespace {

std::vector<int64_t> extents_of(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

// The element of a dense tensor where a box with these leading borders begins.
int64_t corner(const Shape& shape, const std::vector<int64_t>& before) {
  const auto strides = dense_strides(shape);
  int64_t at = 0;
  for (size_t i = 0; i < before.size(); ++i) at += before[i] * strides[i];
  return at;
}

class Concat final : public Kernel {
 public:
  explicit Concat(const KernelRequest& r) {
    const Shape& y = r.outputs[0].shape;
    const auto axis = static_cast<int>(r.attributes.integer("axis"));
    const auto bytes = static_cast<int64_t>(dtype_size(r.outputs[0].dtype));
    int64_t begin = 0;
    for (const TensorSpec& x : r.inputs) {
      const StridedBox box(extents_of(x.shape), dense_strides(x.shape), dense_strides(y));
      parts_.push_back({StridedCopy(box, static_cast<size_t>(bytes)),
                        begin * y.elements(axis + 1, y.rank()) * bytes});
      begin += x.shape[axis];
    }
  }

  void bind(const Bindings& bindings) override {
    inputs_.assign(bindings.inputs.begin(), bindings.inputs.end());
    output_ = output<std::byte>(bindings, 0);
  }

  void run(Stream&) override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      parts_[i].copy.run(inputs_[i], output_ + parts_[i].offset);
    }
  }

 private:
  struct Part {
    StridedCopy copy;
    int64_t offset;  // in the output, bytes
  };
  std::vector<Part> parts_;
  std::vector<const void*> inputs_;
  std::byte* output_ = nullptr;
};

class Slice final : public Kernel {
 public:
  explicit Slice(const KernelRequest& r)
      : copy_(StridedBox(extents_of(r.outputs[0].shape), dense_strides(r.inputs[0].shape),
                         dense_strides(r.outputs[0].shape)),
              dtype_size(r.inputs[0].dtype)),
        offset_(corner(r.inputs[0].shape, r.attributes.integers("before")) *
                static_cast<int64_t>(dtype_size(r.inputs[0].dtype))) {}

  void bind(const Bindings& bindings) override {
    from_ = input<const std::byte>(bindings, 0) + offset_;
    to_ = output<std::byte>(bindings, 0);
  }
  void run(Stream&) override { copy_.run(from_, to_); }

 private:
  StridedCopy copy_;
  int64_t offset_;
  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
};

// The whole output is filled first: borders are thin beside what is between them, and their shape
// is not simple.
template <typename T>
class Pad final : public Kernel {
 public:
  explicit Pad(const KernelRequest& r)
      : copy_(StridedBox(extents_of(r.inputs[0].shape), dense_strides(r.inputs[0].shape),
                         dense_strides(r.outputs[0].shape)),
              sizeof(T)),
        offset_(corner(r.outputs[0].shape, r.attributes.integers("before"))),
        count_(r.outputs[0].shape.elements()),
        value_(static_cast<T>(r.attributes.number("value"))) {}

  void bind(const Bindings& bindings) override {
    from_ = input<const T>(bindings, 0);
    to_ = output<T>(bindings, 0);
  }

  void run(Stream&) override {
    parallel_for(count_, 16384,
                 [&](int64_t begin, int64_t end) { std::fill(to_ + begin, to_ + end, value_); });
    copy_.run(from_, to_ + offset_);
  }

 private:
  StridedCopy copy_;
  int64_t offset_, count_;
  T value_;
  const T* from_ = nullptr;
  T* to_ = nullptr;
};

}  // namespace

MadeKernel make_concat(const KernelRequest& request) {
  return std::make_unique<Concat>(request);
}

MadeKernel make_slice(const KernelRequest& request) {
  return std::make_unique<Slice>(request);
}

MadeKernel make_pad(const KernelRequest& request) {
  switch (request.inputs[0].dtype) {
    case DType::f32:
      return std::make_unique<Pad<float>>(request);
    case DType::i32:
      return std::make_unique<Pad<int32_t>>(request);
    default:
      return nullptr;
  }
}

}  // namespace dltrain
