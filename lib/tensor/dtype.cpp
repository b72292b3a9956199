#include "tensor/dtype.h"

#include <algorithm>
#include <iterator>

namespace dltrain {
namespace {

// In the order of DType.
constexpr std::string_view kNames[] = {"f32", "f64", "bf16", "f16", "i32",
                                       "i64", "u8",  "i8",   "u16", "bool"};

}  // namespace

std::string_view dtype_name(DType t) {
  return kNames[static_cast<size_t>(t)];
}

std::optional<DType> dtype_from_name(std::string_view name) {
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames)) return std::nullopt;
  return static_cast<DType>(found - std::begin(kNames));
}

}  // namespace dltrain
