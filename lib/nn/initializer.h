// Initial values of parameters and buffers: a pure function of (seed, tensor name, element), so
// they do not depend on the order of construction, on threads or on the parallel layout. (An
// orthogonal matrix is a function of the whole tensor, of the same seed and name.)
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "config/fields.h"
#include "tensor/shape.h"

namespace dltrain {

struct Initializer {
  enum Kind : uint8_t { constant, uniform, normal, truncated_normal, orthogonal };
  Kind kind = constant;
  // One of: the constant; the bound a of U(−a, a); the standard deviation of N(0, σ²), which
  // truncated_normal cuts at ±2σ; the gain of an orthogonal matrix.
  double value = 0;
  double mean = 0;   // of normal, uniform and truncated_normal
  int64_t rows = 0;  // of an orthogonal matrix [rows, the rest]
  struct Span {
    int64_t first = 0, count = 0;  // elements
  };
  Span zeros_at = {};  // elements that are 0 for every kind

  static Initializer zeros() { return {constant, 0}; }
  static Initializer ones() { return {constant, 1}; }
  static Initializer uniform_within(double bound) { return {uniform, bound}; }
  // Uniform within 1/√inputs: PyTorch's default for a layer whose outputs have so many inputs.
  static Initializer uniform_for(int64_t inputs) {
    return uniform_within(1 / std::sqrt(static_cast<double>(inputs)));
  }
  static Initializer normal_of(double deviation) { return {normal, deviation}; }
};

// Fills `out`, whose elements are in the order of checkpoint files.
void initialize(const Initializer& initializer, uint64_t seed, std::string_view name,
                std::span<float> out);

// The configuration of an initialiser: weight_init, bias_init, model.init.
struct InitializerConfig : ConfigVariant {
  void describe(Fields&) override {}
  // Returns the initialiser for a tensor of this shape in files (weights are [out, in, …]), or
  // nothing for the layer's default, which is PyTorch's. Throws Error(usage) if the shape does not
  // fit.
  virtual std::optional<Initializer> resolve(const Shape& file) const = 0;
};

const KindTable<InitializerConfig>& initializer_table();

}  // namespace dltrain
