#include "sweep/sobol.h"

#include <array>

#include "base/error.h"

namespace dltrain {
namespace {

constexpr int kBits = 30;

// A primitive polynomial over GF(2), its coefficients as bits, and the first direction numbers.
struct Direction {
  uint32_t polynomial;
  std::array<uint32_t, 7> first;
};

constexpr Direction kDirections[kSobolDimensions] = {{1, {1}},
                                                     {3, {1}},
                                                     {7, {1, 3}},
                                                     {11, {1, 3, 1}},
                                                     {13, {1, 1, 1}},
                                                     {19, {1, 1, 3, 3}},
                                                     {25, {1, 3, 5, 13}},
                                                     {37, {1, 1, 5, 5, 17}},
                                                     {41, {1, 1, 5, 5, 5}},
                                                     {47, {1, 1, 7, 11, 19}},
                                                     {55, {1, 1, 5, 1, 1}},
                                                     {59, {1, 1, 1, 3, 11}},
                                                     {61, {1, 3, 5, 5, 31}},
                                                     {67, {1, 3, 3, 9, 7, 49}},
                                                     {91, {1, 1, 1, 15, 21, 21}},
                                                     {97, {1, 3, 1, 13, 27, 49}},
                                                     {103, {1, 1, 1, 15, 7, 5}},
                                                     {109, {1, 3, 1, 15, 13, 25}},
                                                     {115, {1, 1, 5, 5, 19, 61}},
                                                     {131, {1, 3, 7, 11, 23, 15, 103}},
                                                     {137, {1, 3, 7, 13, 13, 15, 69}},
                                                     {143, {1, 1, 3, 13, 7, 35, 63}},
                                                     {145, {1, 3, 5, 9, 1, 25, 53}},
                                                     {157, {1, 3, 1, 13, 9, 35, 107}}};

// The direction numbers of a dimension, shifted to the left: bit k of a Gray code adds number k.
std::array<uint32_t, kBits> directions(const Direction& of) {
  std::array<uint32_t, kBits> m{};
  int degree = 0;
  while ((of.polynomial >> (degree + 1)) != 0) ++degree;
  for (int k = 0; k < kBits; ++k) {
    const auto at = static_cast<size_t>(k);
    if (degree == 0) {
      m[at] = 1;
    } else if (k < degree) {
      m[at] = of.first[at];
    } else {
      m[at] = m[at - static_cast<size_t>(degree)];
      for (int i = 1; i <= degree; ++i) {
        const uint32_t coefficient = (of.polynomial >> (degree - i)) & 1;
        m[at] ^= (coefficient * m[at - static_cast<size_t>(i)]) << i;
      }
    }
  }
  for (int k = 0; k < kBits; ++k) m[static_cast<size_t>(k)] <<= kBits - 1 - k;
  return m;
}

}  // namespace

uint32_t sobol(int64_t index, int dimension) {
  check_internal(
      dimension >= 0 && dimension < kSobolDimensions && index >= 0 && index < (int64_t{1} << kBits),
      "no Sobol point {} of dimension {}", index, dimension);
  static const auto kNumbers = [] {
    std::array<std::array<uint32_t, kBits>, kSobolDimensions> out{};
    for (size_t d = 0; d < kSobolDimensions; ++d) out[d] = directions(kDirections[d]);
    return out;
  }();
  uint32_t out = 0;
  auto gray = static_cast<uint64_t>(index ^ (index >> 1));
  for (size_t k = 0; gray != 0; ++k, gray >>= 1) {
    if ((gray & 1) != 0) out ^= kNumbers[static_cast<size_t>(dimension)][k];
  }
  return out;
}

}  // namespace dltrain
