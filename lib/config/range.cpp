#include "config/range.h"

#include <cmath>

#include <fmt/format.h>

namespace dltrain {
namespace {

// 1 and not 1.0: a limit is read by people.
std::string limit_text(double limit) {
  return limit == std::floor(limit) && std::abs(limit) < 1e15
             ? std::to_string(static_cast<int64_t>(limit))
             : fmt::format("{}", limit);
}

const char* elements(size_t n) {
  return n == 1 ? "element" : "elements";
}

}  // namespace

bool in_range(double value, const Key& key) {
  return !(key.min && value < *key.min) && !(key.max && value > *key.max) &&
         !(key.above && value <= *key.above) && !(key.below && value >= *key.below);
}

std::string describe_range(const Key& key, const ValueSlot* slot) {
  std::string low, high;
  if (key.min) low = "at least " + limit_text(*key.min);
  if (key.above) low = "above " + limit_text(*key.above);
  if (key.max) high = "at most " + limit_text(*key.max);
  if (key.below) high = "below " + limit_text(*key.below);
  if (slot && low.empty() && slot->lowest > INT64_MIN) {
    low = fmt::format("at least {}", slot->lowest);
  }
  if (slot && high.empty() && slot->highest < INT64_MAX) {
    high = fmt::format("at most {}", slot->highest);
  }
  if (low.empty() || high.empty()) return low + high;
  return low + " and " + high;
}

std::string describe_size(const Key& key) {
  if (key.min_size && key.max_size) {
    if (*key.min_size == *key.max_size) {
      return fmt::format("{} {}", *key.min_size, elements(*key.min_size));
    }
    return fmt::format("{} to {} elements", *key.min_size, *key.max_size);
  }
  if (key.min_size) return fmt::format("at least {} {}", *key.min_size, elements(*key.min_size));
  if (key.max_size) return fmt::format("at most {} {}", *key.max_size, elements(*key.max_size));
  return {};
}

}  // namespace dltrain
