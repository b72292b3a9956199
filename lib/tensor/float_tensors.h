// Conversions between the floating-point formats of files and f32.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tensor/safetensors.h"

namespace dltrain {

// Converts an f32, f64, bf16 or f16 tensor to f32; empty for another dtype.
std::vector<float> as_f32(const SafetensorsFile& file, const SafetensorsEntry& entry);

// Converts f32, f64, bf16 or f16 elements to f32; empty for another dtype.
std::vector<float> floats_of(std::span<const std::byte> bytes, DType dtype);

// Returns true if there is no NaN and no infinity.
bool all_finite(std::span<const float> values);

// Converts to a floating-point dtype, rounded to nearest even.
std::vector<std::byte> bytes_as(std::span<const float> values, DType dtype);

}  // namespace dltrain
