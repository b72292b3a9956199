// Vectors of 16-bit elements against the scalar conversions of tensor/low_precision.h.
#include "cpu/convert.h"

#include <bit>
#include <cmath>
#include <vector>

#include "catch.h"

using namespace dltrain;

namespace {

template <typename T>
void check_widening(DType dtype) {
  std::vector<uint16_t> from(65536);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint16_t>(i);
  std::vector<float> to(from.size());
  widen_function(dtype)(from.data(), to.data(), 65536 - 7);
  size_t wrong = 0;
  for (size_t i = 0; i + 7 < from.size(); ++i) {
    const float expected = to_f32(T{from[i]});
    const bool same = std::isnan(expected)
                          ? std::isnan(to[i])
                          : std::bit_cast<uint32_t>(expected) == std::bit_cast<uint32_t>(to[i]);
    wrong += same ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(to.back() == 0);
}

template <typename T>
void check_narrowing(DType dtype) {
  std::vector<float> from;
  // Every 4099th float (a prime, so that all bits vary), from all of them.
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4099) {
    from.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  std::vector<uint16_t> to(from.size());
  narrow_function(dtype)(from.data(), to.data(), static_cast<int64_t>(from.size()));
  size_t wrong = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    T expected;
    from_f32(from[i], expected);
    const bool nan = std::isnan(to_f32(expected)) && std::isnan(to_f32(T{to[i]}));
    wrong += nan || expected.bits == to[i] ? 0 : 1;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("vectors of 16-bit elements are widened exactly, the last few too") {
  check_widening<Bf16>(DType::bf16);
  check_widening<F16>(DType::f16);
}

TEST_CASE("vectors are rounded to 16 bits as single numbers are") {
  check_narrowing<Bf16>(DType::bf16);
  check_narrowing<F16>(DType::f16);
}
