#include "tensor/low_precision.h"

#include <cmath>
#include <limits>

#include "catch.h"

namespace dltrain {
namespace {

template <typename T>
uint16_t rounded(float x) {
  T out;
  from_f32(x, out);
  return out.bits;
}

// Every finite number of the format, its neighbour above, and what lies between them.
template <typename T>
void check_rounding(uint16_t greatest) {
  size_t wrong = 0;
  for (uint16_t bits = 0; bits < greatest; ++bits) {
    const float low = to_f32(T{bits}), high = to_f32(T{static_cast<uint16_t>(bits + 1)});
    const float middle = static_cast<float>((double{low} + double{high}) / 2);
    const uint16_t even = bits % 2 == 0 ? bits : static_cast<uint16_t>(bits + 1);
    wrong += rounded<T>(low) != bits;
    wrong += rounded<T>(middle) != even;
    wrong += rounded<T>(std::nextafter(middle, 0.0f)) != bits;
    wrong += rounded<T>(std::nextafter(middle, high)) != bits + 1;
    wrong += rounded<T>(-low) != (bits | 0x8000);
  }
  CHECK(wrong == 0);
}

TEST_CASE("16-bit formats round every number to the nearest, ties to even") {
  check_rounding<Bf16>(0x7F7F);
  check_rounding<F16>(0x7BFF);
}

TEST_CASE("16-bit formats have the values of their definitions, infinities and NaN included") {
  CHECK(to_f32(Bf16{0x3F80}) == 1.0f);
  CHECK(to_f32(Bf16{0xC040}) == -3.0f);
  CHECK(to_f32(F16{0x3C00}) == 1.0f);
  CHECK(to_f32(F16{0x7BFF}) == 65504.0f);
  CHECK(to_f32(F16{0x0001}) == std::ldexp(1.0f, -24));
  CHECK(to_f32(F16{0x0400}) == std::ldexp(1.0f, -14));
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(to_f32(F16{0x7C00}) == infinity);
  CHECK(to_f32(F16{0xFC00}) == -infinity);
  CHECK(rounded<F16>(65519.0f) == 0x7BFF);
  CHECK(rounded<F16>(65520.0f) == 0x7C00);
  CHECK(rounded<F16>(1e-9f) == 0);
  CHECK(rounded<Bf16>(-infinity) == 0xFF80);
  CHECK(rounded<Bf16>(3.4e38f) == 0x7F80);
  CHECK(std::isnan(to_f32(F16{rounded<F16>(NAN)})));
  CHECK(std::isnan(to_f32(Bf16{rounded<Bf16>(NAN)})));
}

}  // namespace
}  // namespace dltrain
