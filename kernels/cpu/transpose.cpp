// transpose: if the last axis stays last, copies rows; else transposes planes of the innermost axes
// of input and output, 16 columns at a time. Any dtype.
#include <algorithm>

#include "base/error.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/strided_copy.h"
#include "cpu/support.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/transpose.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/tile-inl.h"
#include "shared/make_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {

void transpose_f32(const float* from, int64_t rows, int64_t columns, int64_t from_stride, float* to,
                   int64_t to_stride) {
  transpose(from, rows, columns, from_stride, to, to_stride);
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(transpose_f32);

// to[c·to_stride + r] = from[r·from_stride + c]
template <typename T>
void transpose_plane(const T* from, int64_t rows, int64_t columns, int64_t from_stride, T* to,
                     int64_t to_stride) {
  if constexpr (sizeof(T) == sizeof(float)) {
    HWY_DYNAMIC_DISPATCH(transpose_f32)
    (reinterpret_cast<const float*>(from), rows, columns, from_stride, reinterpret_cast<float*>(to),
     to_stride);
  } else {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = 0; r < rows; ++r) to[c * to_stride + r] = from[r * from_stride + c];
    }
  }
}

StridedBox box_of(const KernelRequest& request) {
  const Shape &x = request.inputs[0].shape, &y = request.outputs[0].shape;
  const auto permutation = request.attributes.integers("permutation");
  const auto strides = dense_strides(x);
  std::vector<int64_t> from;
  for (int64_t axis : permutation) from.push_back(strides[static_cast<size_t>(axis)]);
  return StridedBox(y.list(), from, dense_strides(y));
}

template <typename T>
class TransposePlanes final : public Kernel {
 public:
  explicit TransposePlanes(const StridedBox& box) : rows_(box.axes().front()) {
    for (const StridedBox::Axis& axis : box.axes()) {
      if (axis.from == 1) {
        columns_ = axis;
      } else if (&axis != &box.axes().front()) {
        outer_.push_back(axis);
        planes_ *= axis.extent;
      }
    }
    check_internal(rows_.to == 1 && columns_.from == 1, "transpose: no dense axis");
  }

  // A loop element is 16 columns of a plane.
  void run(const Bindings& b, Stream&) const override {
    const int64_t strips = ceil_div(columns_.extent, kStrip);
    const int64_t grain = std::max<int64_t>(1, 4096 / (kStrip * rows_.extent));
    parallel_each(planes_ * strips, grain,
                  [&](int64_t i) { turn_strip(b, i / strips, i % strips * kStrip); });
  }

 private:
  static constexpr int64_t kStrip = 16;

  void turn_strip(const Bindings& b, int64_t plane, int64_t column) const {
    const T* from = b.input<T>(0) + column;
    T* to = b.output<T>(0) + column * columns_.to;
    for (const StridedBox::Axis& axis : outer_) {
      const int64_t at = plane % axis.extent;
      plane /= axis.extent;
      from += at * axis.from;
      to += at * axis.to;
    }
    transpose_plane(from, rows_.extent, std::min(kStrip, columns_.extent - column), rows_.from, to,
                    columns_.to);
  }

  StridedBox::Axis rows_, columns_{1, 0, 0};
  std::vector<StridedBox::Axis> outer_;
  int64_t planes_ = 1;
};

}  // namespace

std::unique_ptr<Kernel> make_transpose(const KernelRequest& request) {
  const StridedBox box = box_of(request);
  const DType dtype = request.inputs[0].dtype;
  if (box.axes().front().from == 1) {
    return make_kernel([copy = StridedCopy(box, dtype_size(dtype))](const Bindings& b, Stream&) {
      copy.run(b.inputs[0], b.outputs[0]);
    });
  }
  return with_word(dtype, [&]<typename T>(T) -> std::unique_ptr<Kernel> {
    return std::make_unique<TransposePlanes<T>>(box);
  });
}

}  // namespace dltrain
#endif
