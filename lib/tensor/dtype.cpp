#include "tensor/dtype.h"

#include <array>
#include <utility>

namespace dltrain {
namespace {
constexpr std::array<std::pair<DType, std::string_view>, 10> kNames{{
    {DType::f32, "f32"},
    {DType::f64, "f64"},
    {DType::bf16, "bf16"},
    {DType::f16, "f16"},
    {DType::i32, "i32"},
    {DType::i64, "i64"},
    {DType::u8, "u8"},
    {DType::i8, "i8"},
    {DType::u16, "u16"},
    {DType::boolean, "bool"},
}};
}  // namespace

std::string_view dtype_name(DType t) {
  for (const auto& [dtype, name] : kNames) {
    if (dtype == t) return name;
  }
  return "?";
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const auto& [dtype, known] : kNames) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace dltrain
