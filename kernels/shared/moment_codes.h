// Moments in 8 bits (lib/ops/update.cpp), for host and device code: the value of each code, and the
// code nearest to a number of [−1, 1] without a search. The upper bits of a float (exponent and 7
// bits of the fraction) say how many middles between neighbouring codes are surely below it; at
// most one more is.
//
// A positive number without a sign never gets the code of 0, unlike in bitsandbytes: a second
// moment of 0 beside a first one that is not would make a step as large as 1/epsilon. Adam then
// diverges where the gradients of a block have very different sizes (inputs that are rarely other
// than 0).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <span>

#include "base/host_device.h"
#include "shared/element_rules.h"
#include "tensor/block_codes.h"
#include "tensor/low_precision.h"

namespace dltrain {

// True if an optimizer's moments can be in 8 bits (Rule::k8BitMoments): the first has a sign, the
// second has none.
template <typename Rule>
inline constexpr bool kHas8BitMoments = [] {
  if constexpr (requires { Rule::k8BitMoments; }) return Rule::k8BitMoments;
  return false;
}();

// Magnitudes below 2⁻²⁴ are nearest to 0.
inline constexpr int32_t kFirstPlace = (127 - 24) << 7, kPlaces = (24 << 7) + 1;

// One table. Index: a type for up to 255.
template <typename Index>
struct alignas(16) MomentCodes {
  float value[256];       // of each code
  float between[256];     // the middle of the k-th and the next magnitude
  int32_t zero;           // the code of 0; that of the k-th magnitude is zero ± k
  int32_t most_negative;  // the greatest k of a negative number: −1 has no code
  Index below[kPlaces];   // middles below all numbers of this place

  // The index of a float's place, from its bits.
  static DLTRAIN_HD int32_t place(uint32_t bits) {
    const int32_t place = static_cast<int32_t>((bits & 0x7FFFFFFFu) >> 16) - kFirstPlace;
    return place < 0 ? 0 : place < kPlaces ? place : kPlaces - 1;
  }
  // The code nearest to x; of two at equal distance that of the smaller magnitude. Without a sign
  // the code of 0 is that of 0 alone.
  DLTRAIN_HD uint8_t nearest(float x) const {
    int32_t k = static_cast<int32_t>(below[place(bits_as<uint32_t>(x))]);
    k += (x < 0 ? -x : x) > between[k] ? 1 : 0;
    if (x >= 0) return static_cast<uint8_t>(zero + k);
    return static_cast<uint8_t>(zero - (k < most_negative ? k : most_negative));
  }
};

using WideMomentCodes = MomentCodes<int32_t>;    // for gathers of 4 bytes
using NarrowMomentCodes = MomentCodes<uint8_t>;  // for shared memory

// `with_sign`: of the first moment.
template <typename Index>
void fill_moment_codes(MomentCodes<Index>& out, bool with_sign) {
  const std::array<float, 256> codes = dynamic_codes(with_sign);
  std::ranges::copy(codes, out.value);
  out.zero = static_cast<int32_t>(std::ranges::find(codes, 0.0f) - codes.begin());
  out.most_negative = out.zero;
  const auto magnitudes = std::span(codes).subspan(static_cast<size_t>(out.zero));
  std::ranges::fill(out.between, std::numeric_limits<float>::infinity());
  for (size_t k = 0; k + 1 < magnitudes.size(); ++k) {
    out.between[k] = (magnitudes[k] + magnitudes[k + 1]) / 2;
  }
  if (!with_sign) out.between[0] = 0;
  for (int32_t place = 0; place < kPlaces; ++place) {
    const auto least = std::bit_cast<float>(static_cast<uint32_t>(place + kFirstPlace) << 16);
    const auto first = std::ranges::lower_bound(out.between, least);
    out.below[place] = static_cast<Index>(place == 0 ? 0 : first - out.between);
  }
}

}  // namespace dltrain
