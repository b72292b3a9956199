// Initial values of parameters and buffers: a pure function of (seed, tensor name, element), so
// they do not depend on the order of construction, on threads or on the parallel layout.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace dltrain {

struct Initializer {
  enum Kind : uint8_t { constant, uniform, normal };
  Kind kind = constant;
  double value = 0;  // the constant; the bound a of U(−a, a); the standard deviation of N(0, σ²)

  static Initializer zeros() { return {constant, 0}; }
  static Initializer ones() { return {constant, 1}; }
  static Initializer uniform_within(double bound) { return {uniform, bound}; }
  static Initializer normal_of(double deviation) { return {normal, deviation}; }
};

// Fills `out`, whose elements stand in the order of checkpoint files.
void initialize(const Initializer& initializer, uint64_t seed, std::string_view name,
                std::span<float> out);

}  // namespace dltrain
