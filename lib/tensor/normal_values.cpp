#include "tensor/normal_values.h"

#include <algorithm>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/normal_values.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format off: after the two above
#include <hwy/contrib/math/math-inl.h>
// clang-format on

#include "base/philox.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kBlock = 256;  // numbers per block; a multiple of the lanes of all vectors

void fill(uint64_t seed, uint64_t stream, uint64_t step, uint64_t first, double deviation,
          double mean, std::span<float> out) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> narrow;
  HWY_ALIGN double radius[kBlock], angle[kBlock];
  HWY_ALIGN float values[kBlock];
  for (size_t at = 0; at < out.size(); at += kBlock) {
    const size_t count = std::min(kBlock, out.size() - at);
    for (size_t i = 0; i < kBlock; i += 2) {
      const Philox4 bits = random_block(seed, stream, step, (first + at + i) / 2);
      for (size_t k : {size_t{0}, size_t{1}}) {
        // 1 − u keeps the logarithm finite.
        radius[i + k] = 1.0 - static_cast<double>(uniform_from_bits(bits.v[2 * k]));
        angle[i + k] =
            2 * std::numbers::pi * static_cast<double>(uniform_from_bits(bits.v[2 * k + 1]));
      }
    }
    for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
      const auto length = hn::Sqrt(hn::Mul(hn::Set(d, -2.0), hn::Log(d, hn::Load(d, radius + i))));
      const auto standard = hn::Mul(length, hn::Cos(d, hn::Load(d, angle + i)));
      const auto value = hn::MulAdd(standard, hn::Set(d, deviation), hn::Set(d, mean));
      hn::Store(hn::DemoteTo(narrow, value), narrow, values + i);
    }
    std::copy_n(values, count, out.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dltrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(fill);
}

void normal_values(uint64_t seed, uint64_t stream, uint64_t step, uint64_t first, double deviation,
                   double mean, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(fill)(seed, stream, step, first, deviation, mean, out);
}

}  // namespace dltrain
#endif
