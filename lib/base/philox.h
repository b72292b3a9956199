// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A draw is a pure function of (seed, stream, step, element index), so dropout
// masks, initial weights and data order never depend on threads, ranks, accumulation or resume.
// Host and device code share this file.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/host_device.h"

namespace dltrain {

struct Philox4 {
  uint32_t v[4];
};

// The block function: four 32-bit outputs for one 128-bit counter under one 64-bit key.
DLTRAIN_HD Philox4 philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c0 = n0;
    c1 = static_cast<uint32_t>(p1);
    c2 = n2;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The random bits of elements 4·block … 4·block + 3 (see random_bits).
DLTRAIN_HD Philox4 random_block(uint64_t seed, uint64_t stream, uint64_t step, uint64_t block) {
  const uint64_t key = seed ^ (stream * 0x9E3779B97F4A7C15ull);
  return philox4x32(key, block, (step << 20) ^ (stream >> 44));
}

// 32 random bits for element `index`. `stream` separates purposes (hash of a tensor or layer name,
// see random_stream); `step` is 0 where nothing depends on the step. Elements 4k..4k+3 share a
// block.
DLTRAIN_HD uint32_t random_bits(uint64_t seed, uint64_t stream, uint64_t step, uint64_t index) {
  return random_block(seed, stream, step, index >> 2).v[index & 3];
}

DLTRAIN_HD float uniform_from_bits(uint32_t bits) {
  return static_cast<float>(bits >> 8) * (1.0f / 16777216.0f);
}

// Uniform in [0, 1) with 24 bits.
DLTRAIN_HD float random_uniform(uint64_t seed, uint64_t stream, uint64_t step, uint64_t index) {
  return uniform_from_bits(random_bits(seed, stream, step, index));
}

// FNV-1a of a purpose or tensor name: the `stream` of the functions above.
constexpr uint64_t random_stream(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ull;
  }
  return hash;
}

}  // namespace dltrain
