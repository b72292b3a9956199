// A random permutation whose elements can be computed independently: a Feistel network over
// Z_a x Z_b with a * b >= n, with cycle walking until the value is below n (Black and Rogaway,
// "Ciphers with arbitrary finite domains", CT-RSA 2002). It needs no table and no state, so
// training can start at any position on any rank.
#pragma once

#include <array>
#include <cstdint>

namespace dltrain {

class Permutation {
 public:
  // Permutes 0 … n-1 for 1 <= n < 2^62. The order is a pure function of the arguments.
  Permutation(uint64_t n, uint64_t seed, uint64_t epoch);

  // Returns the element at a place; each of 0 … n-1 has exactly one place.
  uint64_t operator()(uint64_t index) const;

 private:
  uint64_t encipher(uint64_t value) const;

  static constexpr int kRounds = 8;

  uint64_t n_, a_, b_;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace dltrain
