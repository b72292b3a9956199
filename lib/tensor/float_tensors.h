// Floating tensors of files as f32, and f32 as the formats of files.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tensor/safetensors.h"

namespace dltrain {

// Elements of an f32, f64, bf16 or f16 tensor as f32; empty for another dtype.
std::vector<float> as_f32(const SafetensorsFile& file, const SafetensorsEntry& entry);

// f32, f64, bf16 or f16 elements as f32; empty for another dtype.
std::vector<float> floats_of(std::span<const std::byte> bytes, DType dtype);

// Whether there is no NaN and no infinity.
bool all_finite(std::span<const float> values);

// The elements in f32, bf16 or f16, rounded to nearest even.
std::vector<std::byte> bytes_as(std::span<const float> values, DType dtype);

}  // namespace dltrain
