// matmul of a few rows with a weight [N, K] (attribute independent_rows): every element of y is a
// separate dot product, so the bits of a row depend neither on other rows nor on the number of
// threads. The weight is read only once, which dominates the time: a tile of kColumns of its rows
// stays in cache while it is multiplied with all rows of a. 16-bit operands are widened when
// loaded, and sums are f32.

#include "cpu/convert.h"
#include "cpu/elementwise_steps.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"
#include "tensor/low_precision.h"

#ifndef DLTRAIN_CPU_MATMUL_ROWS_ONCE
#define DLTRAIN_CPU_MATMUL_ROWS_ONCE
namespace dltrain {
namespace {
// y [m, n] = a·wᵀ with a [m, k] in f32 and w [n, k].
struct RowsCall {
  const float* a;
  const void* w;
  float* y;
  int64_t m, k, n;
};
// Computes columns [begin, end) of y.
using RowsFunction = void (*)(const RowsCall& call, int64_t begin, int64_t end);
}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/matmul_rows.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
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
        total += a[r * k + rest] * to_f32(w[c * k + rest]);
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
  if (r == call.m) return;
  with_constant<kRowsAtOnce - 1>(call.m - r, [&](auto rows) HWY_ATTR {
    dot_tile<rows, kWide>(a, w, call.k, y + r * call.n, call.n);
  });
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
  return with_element_type(dtype, []<typename T>(T) -> RowsFunction { return multiply_rows<T>; });
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(rows_function);

constexpr int64_t kChunk = 32;  // least columns of y per thread

}  // namespace

std::unique_ptr<Kernel> make_matmul_rows(const KernelRequest& request) {
  const Attributes& at = request.attributes;
  const DType dtype = request.inputs[0].dtype;
  const WidenFunction widen = widen_function(dtype);
  const NarrowFunction narrow = narrow_function(request.outputs[0].dtype);
  if (!at.boolean("independent_rows") || at.boolean("transpose_a") || !at.boolean("transpose_b") ||
      request.accumulate || request.outputs[0].shape.elements() == 0 || widen == nullptr ||
      narrow == nullptr) {
    return nullptr;
  }
  const std::string activation = at.text("activation");
  const StepFunction step = activation.empty()
                                ? nullptr
                                : elementwise_step(activation_of(activation), OperandKind::each,
                                                   OperandKind::each, false);
  const Shape& a = request.inputs[0].shape;
  const int64_t m = a.elements(0, a.rank() - 1), k = a[-1], n = request.inputs[1].shape[0];
  const bool widens = is_low_precision(dtype), narrows = is_low_precision(request.outputs[0].dtype);
  // Contains a and the bias in f32, then y if it must be rounded.
  const int64_t floats = (widens ? m * k + n : 0) + (narrows ? m * n : 0);
  const auto run = [=, function = HWY_DYNAMIC_DISPATCH(rows_function)(dtype)](const Bindings& b,
                                                                              Stream&) {
    auto* workspace = static_cast<float*>(b.workspace);
    const float* bias = b.input<float>(2);
    RowsCall call{b.input<float>(0), b.inputs[1], b.output<float>(0), m, k, n};
    if (widens) {
      float* wide_bias = workspace + m * k;
      widen(b.inputs[0], workspace, m * k);
      if (bias != nullptr) widen(b.inputs[2], wide_bias, n);
      call.a = workspace;
      if (bias != nullptr) bias = wide_bias;
      workspace = wide_bias + n;
    }
    if (narrows) call.y = workspace;
    parallel_for(n, kChunk, [&](int64_t begin, int64_t end) {
      function(call, begin, end);
      for (int64_t r = 0; r < m; ++r) {
        const int64_t first = r * n + begin, count = end - begin;
        float* y = call.y + first;
        for (int64_t i = 0; bias != nullptr && i < count; ++i) y[i] += bias[begin + i];
        if (step != nullptr) step({.a = y, .b = y, .out = y, .count = count, .p = 0, .q = 0});
        if (narrows) narrow(y, b.output<uint16_t>(0) + first, count);
      }
    });
  };
  return make_kernel(run, static_cast<size_t>(floats) * sizeof(float));
}

}  // namespace dltrain
#endif
