// Element types of tensors. Names in YAML, safetensors and messages are given by dtype_name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace dltrain {

enum class DType : uint8_t { f32, f64, bf16, f16, i32, i64, u8, i8, u16, boolean };

// Bytes of one element.
constexpr size_t dtype_size(DType t) {
  constexpr size_t kBytes[] = {4, 8, 2, 2, 4, 8, 1, 1, 2, 1};  // in the order of DType
  return kBytes[static_cast<size_t>(t)];
}

constexpr bool is_floating(DType t) {
  return t == DType::f32 || t == DType::f64 || t == DType::bf16 || t == DType::f16;
}

// True for 16-bit floating types: tensors are stored in them, sums are not.
constexpr bool is_low_precision(DType t) {
  return t == DType::bf16 || t == DType::f16;
}

// "f32", "bf16", "i64", "bool", ...
std::string_view dtype_name(DType t);
// The inverse of dtype_name; nothing for an unknown name.
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace dltrain
