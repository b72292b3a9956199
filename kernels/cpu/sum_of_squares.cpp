#include "cpu/sum_of_squares.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/sum_of_squares.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// `load(from)`: a vector of f32 as wide as one of f64; `one(i)`: element i.
template <typename Load, typename One>
HWY_INLINE double sum_squares(int64_t count, const float* x, const Load& load, const One& one) {
  const hn::ScalableTag<double> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  const auto add = [&](auto& sum, const float* from) HWY_ATTR {
    const auto v = hn::PromoteTo(d, load(from));
    sum = hn::MulAdd(v, v, sum);
  };
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    add(s0, x + i);
    add(s1, x + i + lanes);
    add(s2, x + i + 2 * lanes);
    add(s3, x + i + 3 * lanes);
  }
  s0 = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
  double sum = hn::GetLane(hn::SumOfLanes(d, s0));
  for (; i < count; ++i) {
    const double v = static_cast<double>(one(i));
    sum += v * v;
  }
  return sum;
}

double plain(const float* x, int64_t count) {
  const hn::Rebind<float, hn::ScalableTag<double>> half;
  return sum_squares(
      count, x, [&](const float* from) HWY_ATTR { return hn::LoadU(half, from); },
      [&](int64_t i) { return x[i]; });
}

double viewed(const GradientView<float>& view, const float* x, int64_t count) {
  const hn::Rebind<float, hn::ScalableTag<double>> half;
  const auto factor = hn::Set(half, view.factor), limit = hn::Set(half, view.limit);
  return sum_squares(
      count, x,
      [&](const float* from) HWY_ATTR {
        const auto g = hn::Mul(hn::LoadU(half, from), factor);
        return hn::Max(hn::Min(g, limit), hn::Neg(limit));
      },
      [&](int64_t i) { return view(x[i]); });
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(plain);
HWY_EXPORT(viewed);
}  // namespace

double sum_of_squares(const float* x, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(plain)(x, count);
}
double sum_of_squares(const GradientView<float>& view, const float* gradient, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(viewed)(view, gradient, count);
}

}  // namespace dltrain
#endif
