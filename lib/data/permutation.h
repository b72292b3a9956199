// A random order of n things of which any element can be computed alone: a Feistel network over
// Z_a x Z_b with a * b >= n, walking the cycle until the value lies below n (Black and Rogaway,
// "Ciphers with arbitrary finite domains", CT-RSA 2002). No table of n, no state: so training can
// start anywhere in the order, on any rank, at once.
#pragma once

#include <array>
#include <cstdint>

namespace dltrain {

class Permutation {
 public:
  // Of 0 … n-1, for 1 <= n < 2^62. A pure function of its arguments.
  Permutation(uint64_t n, uint64_t seed, uint64_t epoch);

  // The place's element; each element of 0 … n-1 stands at exactly one place.
  uint64_t operator()(uint64_t place) const;

 private:
  uint64_t encipher(uint64_t value) const;

  static constexpr int kRounds = 8;

  uint64_t n_, a_, b_;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace dltrain
