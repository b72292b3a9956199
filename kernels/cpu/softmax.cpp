// softmax, log_softmax and their gradients. One thread computes a row, with sums by lanes in a
// fixed order. The result may share the memory of an input.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"

#ifndef DLTRAIN_CPU_SOFTMAX_ONCE
#define DLTRAIN_CPU_SOFTMAX_ONCE
namespace dltrain {
namespace {

struct SoftmaxRows {
  const float* a;  // x, or y of a gradient
  const float* b;  // dy of a gradient
  float* out;
  int64_t columns;
};

}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/element-inl.h"
#include "cpu/simd_math-inl.h"
#include "shared/make_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {

template <bool logarithm>
void softmax_rows(const SoftmaxRows& s, int64_t begin, int64_t end) {
  const Floats d;
  const FloatVec lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t r = begin; r < end; ++r) {
    const float* x = s.a + r * s.columns;
    float* y = s.out + r * s.columns;
    FloatVec greatest = lowest, sum = hn::Zero(d);
    along_row(s.columns, [&](int64_t i, auto mask, size_t) HWY_ATTR {
      greatest = hn::Max(greatest, hn::IfThenElse(mask, hn::MaskedLoad(mask, d, x + i), lowest));
    });
    greatest = hn::MaxOfLanes(d, greatest);
    along_row(s.columns, [&](int64_t i, auto mask, size_t) HWY_ATTR {
      const FloatVec e = exp_vec(hn::Sub(hn::MaskedLoad(mask, d, x + i), greatest));
      sum = hn::Add(sum, hn::IfThenElseZero(mask, e));
      if constexpr (!logarithm) hn::BlendedStore(e, mask, d, y + i);
    });
    const float total = hn::GetLane(hn::SumOfLanes(d, sum));
    // Subtract the maximum first: both have similar magnitude, so that no precision is lost.
    const FloatVec shift = hn::Set(d, std::log(total)), scale = hn::Set(d, 1 / total);
    along_row(s.columns, [&](int64_t i, auto mask, size_t) HWY_ATTR {
      const FloatVec v = hn::MaskedLoad(mask, d, (logarithm ? x : y) + i);
      const FloatVec result = logarithm ? hn::Sub(hn::Sub(v, greatest), shift) : hn::Mul(v, scale);
      hn::BlendedStore(result, mask, d, y + i);
    });
  }
}

template <bool logarithm>
void softmax_backward_rows(const SoftmaxRows& s, int64_t begin, int64_t end) {
  const Floats d;
  for (int64_t r = begin; r < end; ++r) {
    const float *y = s.a + r * s.columns, *dy = s.b + r * s.columns;
    float* dx = s.out + r * s.columns;
    FloatVec lanes = hn::Zero(d);
    along_row(s.columns, [&](int64_t i, auto mask, size_t) HWY_ATTR {
      const FloatVec gradient = hn::MaskedLoad(mask, d, dy + i);
      const FloatVec weight = logarithm ? constant(1) : hn::MaskedLoad(mask, d, y + i);
      lanes = hn::MulAdd(gradient, weight, lanes);
    });
    const FloatVec sum = hn::SumOfLanes(d, lanes);
    along_row(s.columns, [&](int64_t i, auto mask, size_t) HWY_ATTR {
      const FloatVec gradient = hn::MaskedLoad(mask, d, dy + i);
      const FloatVec output = hn::MaskedLoad(mask, d, y + i);
      const FloatVec result = logarithm ? hn::NegMulAdd(exp_vec(output), sum, gradient)
                                        : hn::Mul(output, hn::Sub(gradient, sum));
      hn::BlendedStore(result, mask, d, dx + i);
    });
  }
}

void forward(const SoftmaxRows& s, bool logarithm, int64_t begin, int64_t end) {
  logarithm ? softmax_rows<true>(s, begin, end) : softmax_rows<false>(s, begin, end);
}
void backward(const SoftmaxRows& s, bool logarithm, int64_t begin, int64_t end) {
  logarithm ? softmax_backward_rows<true>(s, begin, end)
            : softmax_backward_rows<false>(s, begin, end);
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(forward);
HWY_EXPORT(backward);

}  // namespace

std::unique_ptr<Kernel> make_softmax(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const bool is_backward = request.inputs.size() == 2, logarithm = request.op.starts_with("log_");
  const int64_t columns = request.inputs[0].shape[-1];
  const int64_t count = request.inputs[0].shape.elements() / std::max<int64_t>(1, columns);
  return make_kernel([=](const Bindings& b, Stream&) {
    SoftmaxRows rows{};
    rows.columns = columns;
    rows.a = b.input<float>(0);
    rows.b = b.input<float>(1);
    rows.out = b.output<float>(0);
    const auto function =
        is_backward ? HWY_DYNAMIC_DISPATCH(backward) : HWY_DYNAMIC_DISPATCH(forward);
    const int64_t grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, columns));
    parallel_for(count, grain,
                 [&](int64_t begin, int64_t end) { function(rows, logarithm, begin, end); });
  });
}

}  // namespace dltrain
#endif
