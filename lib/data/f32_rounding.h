// Finds columns whose values differ by so little that they become equal in f32: times in seconds
// since 1970, for example.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <unordered_set>

#include "data/warn_once.h"

namespace dltrain {

// The values of one column as they are before they are stored in f32.
class F32Rounding {
 public:
  void add(double value) {
    const auto stored = static_cast<float>(value);
    if (stored == value || values_.size() >= kMaxValues) return;
    // Fractions that differ in the last 9 of 52 bits are one, with rounding errors.
    const auto bits = std::bit_cast<uint64_t>(value);
    const bool is_exact = std::abs(value) < 0x1p53 && value == std::floor(value);
    values_.insert(is_exact ? bits : (bits + 256) >> 9);
    stored_.insert(stored);
  }

  // Logs a warning that begins with `column`.
  void warn(const std::string& column) const {
    if (2 * stored_.size() >= values_.size()) return;
    const float near = std::abs(*stored_.begin());
    warn_once(fmt::format(
        "{}: {}{} different values become {} in f32, whose numbers near {:.3g} are {:.3g} apart; "
        "subtract a constant from them",
        column, values_.size() < kMaxValues ? "" : "the first ", values_.size(), stored_.size(),
        near, std::nextafter(near, std::numeric_limits<float>::max()) - near));
  }

 private:
  static constexpr size_t kMaxValues = 256;
  std::unordered_set<uint64_t> values_;
  std::unordered_set<float> stored_;
};

}  // namespace dltrain
