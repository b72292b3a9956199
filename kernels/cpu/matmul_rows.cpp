// matmul of a few rows with a weight [N, K] (attribute independent_rows): every element of y is a
// separate dot product, so the bits of a row depend neither on other rows nor on the number of
// threads. The weight is read only once, which dominates the time: a tile of kColumns of its rows
// stays in cache while it is multiplied with all rows of a. 16-bit operands are widened when
// loaded, and sums are f32.
#include "cpu/matmul_rows.h"

#include <algorithm>

#include "cpu/convert.h"
#include "cpu/elementwise_steps.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"
#include "tensor/low_precision.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/matmul_rows.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using RowTag = hn::ScalableTag<float>;
using RowVec = hn::Vec<RowTag>;

constexpr int kColumns = 4;     // rows of the weight that are read together
constexpr int kRowsAtOnce = 4;  // of a

HWY_INLINE RowVec widened(const float* from) {
  return hn::LoadU(RowTag(), from);
}
HWY_INLINE RowVec widened(const Bf16* from) {
  const hn::Rebind<hwy::bfloat16_t, RowTag> d;
  return hn::PromoteTo(RowTag(), hn::LoadU(d, reinterpret_cast<const hwy::bfloat16_t*>(from)));
}
HWY_INLINE RowVec widened(const F16* from) {
  const hn::Rebind<hwy::float16_t, RowTag> d;
  return hn::PromoteTo(RowTag(), hn::LoadU(d, reinterpret_cast<const hwy::float16_t*>(from)));
}
HWY_INLINE float widened_one(float value) {
  return value;
}
template <typename T>
HWY_INLINE float widened_one(T value) {
  return to_f32(value);
}

// Computes y[r][c] for kRows rows of a and kWide rows of w.
template <int kRows, int kWide, typename T>
HWY_INLINE void dot_tile(const float* HWY_RESTRICT a, const T* HWY_RESTRICT w, int64_t k, float* y,
                         int64_t ldy) {
  const RowTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  RowVec sum[kRows][kWide];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kWide; ++c) sum[r][c] = hn::Zero(d);
  }
  int64_t i = 0;
  for (; i + lanes <= k; i += lanes) {
    RowVec right[kWide];
#pragma GCC unroll 4
    for (int c = 0; c < kWide; ++c) {
      right[c] = widened(w + c * k + i);
      // 16-bit rows are too short for the hardware prefetcher: prefetch the next tile here.
      if constexpr (sizeof(T) < sizeof(float)) hwy::Prefetch(w + (kWide + c) * k + i);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const RowVec left = hn::LoadU(d, a + r * k + i);
#pragma GCC unroll 4
      for (int c = 0; c < kWide; ++c) sum[r][c] = hn::MulAdd(left, right[c], sum[r][c]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kWide; ++c) {
      float total = hn::GetLane(hn::SumOfLanes(d, sum[r][c]));
      for (int64_t rest = i; rest < k; ++rest) {
        total += a[r * k + rest] * widened_one(w[c * k + rest]);
      }
      y[r * ldy + c] = total;
    }
  }
}

template <int kWide, typename T>
HWY_INLINE void dot_columns(const RowsCall& call, const T* w, float* y) {
  int64_t r = 0;
  for (; r + kRowsAtOnce <= call.m; r += kRowsAtOnce) {
    dot_tile<kRowsAtOnce, kWide>(call.a + r * call.k, w, call.k, y + r * call.n, call.n);
  }
  const float* a = call.a + r * call.k;
  switch (call.m - r) {
    case 1:
      return dot_tile<1, kWide>(a, w, call.k, y + r * call.n, call.n);
    case 2:
      return dot_tile<2, kWide>(a, w, call.k, y + r * call.n, call.n);
    case 3:
      return dot_tile<3, kWide>(a, w, call.k, y + r * call.n, call.n);
    default:
      return;
  }
}

template <typename T>
void multiply_rows(const RowsCall& call, int64_t begin, int64_t end) {
  const T* w = static_cast<const T*>(call.w);
  int64_t n = begin;
  for (; n + kColumns <= end; n += kColumns) {
    dot_columns<kColumns>(call, w + n * call.k, call.y + n);
  }
  for (; n < end; ++n) dot_columns<1>(call, w + n * call.k, call.y + n);
}

RowsFunction rows_function(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return multiply_rows<Bf16>;
    case DType::f16:
      return multiply_rows<F16>;
    default:
      return multiply_rows<float>;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dltrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(rows_function);

constexpr int64_t kChunk = 32;  // least columns of y per thread

class MatmulRows {
 public:
  MatmulRows(const KernelRequest& r, StepFunction activation)
      : dtype_(r.inputs[0].dtype),
        output_dtype_(r.outputs[0].dtype),
        function_(HWY_DYNAMIC_DISPATCH(rows_function)(dtype_)),
        widen_(widen_function(dtype_)),
        narrow_(narrow_function(output_dtype_)),
        activation_(activation) {
    const Shape& a = r.inputs[0].shape;
    call_ = {.a = nullptr,
             .w = nullptr,
             .y = nullptr,
             .m = a.elements(0, a.rank() - 1),
             .k = a[-1],
             .n = r.inputs[1].shape[0]};
  }

  // Contains a and the bias in f32, then y if it must be rounded.
  size_t workspace_bytes() const {
    const int64_t inputs = is_low_precision(dtype_) ? call_.m * call_.k + call_.n : 0;
    const int64_t outputs = is_low_precision(output_dtype_) ? call_.m * call_.n : 0;
    return static_cast<size_t>(inputs + outputs) * sizeof(float);
  }

  void run(const Bindings& b) {
    a_ = b.inputs[0];
    bias_ = b.inputs.size() == 3 ? b.inputs[2] : nullptr;
    y_ = b.outputs[0];
    auto* workspace = static_cast<float*>(b.workspace);
    call_.w = b.inputs[1];
    call_.a = input<const float>(b, 0);
    wide_bias_ = static_cast<const float*>(bias_);
    if (is_low_precision(dtype_)) {
      wide_ = workspace;
      call_.a = workspace;
      if (bias_ != nullptr) wide_bias_ = workspace + call_.m * call_.k;
      workspace += call_.m * call_.k + call_.n;
    }
    call_.y = is_low_precision(output_dtype_) ? workspace : output<float>(b, 0);
    if (wide_ != nullptr) {
      widen_(a_, wide_, call_.m * call_.k);
      if (bias_ != nullptr) widen_(bias_, wide_ + call_.m * call_.k, call_.n);
    }
    parallel_for(call_.n, kChunk, [&](int64_t begin, int64_t end) {
      function_(call_, begin, end);
      for (int64_t r = 0; r < call_.m; ++r) finish(r, begin, end);
    });
  }

 private:
  void finish(int64_t row, int64_t begin, int64_t end) const {
    const int64_t at = row * call_.n + begin, count = end - begin;
    float* y = call_.y + at;
    if (wide_bias_ != nullptr) {
      for (int64_t i = 0; i < count; ++i) y[i] += wide_bias_[begin + i];
    }
    if (activation_ != nullptr) {
      activation_({.a = y, .b = y, .out = y, .count = count, .p = 0, .q = 0});
    }
    if (is_low_precision(output_dtype_)) narrow_(y, static_cast<uint16_t*>(y_) + at, count);
  }

  DType dtype_, output_dtype_;
  RowsFunction function_;
  WidenFunction widen_;
  NarrowFunction narrow_;
  StepFunction activation_;
  RowsCall call_{};
  const void *a_ = nullptr, *bias_ = nullptr;
  void* y_ = nullptr;
  float* wide_ = nullptr;
  const float* wide_bias_ = nullptr;
};

}  // namespace

MadeKernel make_matmul_rows(const KernelRequest& request) {
  const Attributes& at = request.attributes;
  if (!at.boolean("independent_rows") || at.boolean("transpose_a") || !at.boolean("transpose_b") ||
      request.accumulate || request.outputs[0].shape.elements() == 0 ||
      widen_function(request.inputs[0].dtype) == nullptr ||
      narrow_function(request.outputs[0].dtype) == nullptr) {
    return nullptr;
  }
  const std::string activation = at.text("activation");
  StepFunction step = nullptr;
  if (!activation.empty() && activation != "identity") {
    const auto op = elementwise_op(activation);
    if (!op) return nullptr;
    step = elementwise_step(*op, OperandKind::each, OperandKind::each, false);
  }
  return make_call_kernel<MatmulRows>(request, step);
}

}  // namespace dltrain
#endif
