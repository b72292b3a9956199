#include "data/permutation.h"

#include <cmath>

#include "base/error.h"
#include "base/philox.h"

namespace dltrain {
namespace {

// The round function: a number below `bound` (at most 2^32) from a value and the key of the round.
// The mixing is the finalizer of SplitMix64 (Steele et al., OOPSLA 2014): a Philox block per round
// would take ten times as long, and an order need not be secret.
uint64_t mix(uint64_t value, uint64_t key, uint64_t bound) {
  uint64_t bits = value + key;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
  bits ^= bits >> 31;
  return ((bits >> 32) * bound) >> 32;
}

}  // namespace

Permutation::Permutation(uint64_t n, uint64_t seed, uint64_t epoch) : n_(n) {
  check_internal(n >= 1 && n < uint64_t{1} << 62, "a permutation of {}", n);
  a_ = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
  while (a_ * a_ < n) ++a_;
  b_ = (n + a_ - 1) / a_;
  for (size_t round = 0; round < kRounds; ++round) {
    const Philox4 bits = philox4x32(seed ^ random_stream("data.order"), round, epoch);
    keys_[round] = uint64_t{bits.v[0]} << 32 | bits.v[1];
  }
}

uint64_t Permutation::operator()(uint64_t index) const {
  do {
    index = encipher(index);
  } while (index >= n_);
  return index;
}

uint64_t Permutation::encipher(uint64_t value) const {
  uint64_t left = value % a_, right = value / a_;
  for (size_t round = 0; round < kRounds; round += 2) {
    left += mix(right, keys_[round], a_);
    if (left >= a_) left -= a_;
    right += mix(left, keys_[round + 1], b_);
    if (right >= b_) right -= b_;
  }
  return right * a_ + left;
}

}  // namespace dltrain
