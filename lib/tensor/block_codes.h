// Tables of codes for numbers that are stored in 4 or 8 bits, with one scale a block: a number is
// absmax·code[i], where absmax is the largest magnitude of its block and code[i] the nearest entry.
// Tables are sorted, contain 0 and ±1 (unsigned ones only 1), and are those of bitsandbytes, so
// that published results apply.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace dltrain {

// NF4: quantiles of the normal distribution (Dettmers et al. 2023, QLoRA, appendix E).
inline constexpr std::array<float, 16> kNf4Codes{-1.0f,
                                                 -0.6961928009986877f,
                                                 -0.5250730514526367f,
                                                 -0.39491748809814453f,
                                                 -0.28444138169288635f,
                                                 -0.18477343022823334f,
                                                 -0.09105003625154495f,
                                                 0.0f,
                                                 0.07958029955625534f,
                                                 0.16093020141124725f,
                                                 0.24611230194568634f,
                                                 0.33791524171829224f,
                                                 0.44070982933044434f,
                                                 0.5626170039176941f,
                                                 0.7229568362236023f,
                                                 1.0f};

// Dynamic tree quantisation (Dettmers 2016; Dettmers et al. 2022): each decade from 10⁻⁷ to 1 has
// its own codes, twice as many as the decade below it. Signed tables have 0 and 1 once; unsigned
// ones have twice as many codes a decade.
inline std::array<float, 256> dynamic_codes(bool with_sign) {
  constexpr int kDecades = 7;
  std::array<float, 256> codes{};
  size_t count = 0;
  const auto add = [&](float value) { codes.at(count++) = value; };
  for (int decade = 0; decade < kDecades; ++decade) {
    const int steps = 1 << (with_sign ? decade : decade + 1);
    const auto scale = static_cast<float>(std::pow(10.0, decade - kDecades + 1));
    for (int i = 0; i < steps; ++i) {
      // The middle of the i-th of equal parts of [0.1, 1], whose ends torch.linspace computes so.
      const double step = (1.0f - 0.1f) / static_cast<float>(steps);
      const auto edge = [&](int k) {
        const bool low = k < (steps + 1) / 2;
        return static_cast<float>(low ? double{0.1f} + step * k : 1 - step * (steps - k));
      };
      const float mean = (edge(i) + edge(i + 1)) / 2;
      add(scale * mean);
      if (with_sign) add(-scale * mean);
    }
  }
  add(0);
  add(1);
  std::ranges::sort(codes);
  return codes;
}

// Returns the index of the entry of `codes` (sorted) that is nearest to `value`; of two at equal
// distance the lower.
inline uint8_t nearest_code(std::span<const float> codes, float value) {
  const auto above = std::ranges::lower_bound(codes, value);
  if (above == codes.begin()) return 0;
  if (above == codes.end()) return static_cast<uint8_t>(codes.size() - 1);
  const auto below = above - 1;
  const bool upper = *above - value < value - *below;
  return static_cast<uint8_t>((upper ? above : below) - codes.begin());
}

}  // namespace dltrain
