// Frozen weights in 4 or 8 bits (model.lora.base), which the op dequantize expands before a
// product.
//
//   nf4   codes of NF4 (tensor/block_codes.h), two a byte, the first in the high half, and the
//         largest magnitude, absmax, of each 64 elements in the order of memory. With double
//         quantisation absmax, less its mean, is itself in 8-bit codes of the signed dynamic table
//         with a scale for each 256 of them (Dettmers et al. 2023, "QLoRA", section 3)
//   int8  round(127·w / absmax) of each row as two's complement, and absmax of the row (Dettmers et
//         al. 2022, "LLM.int8()")
//
// Codes, scales and expanded values are those of bitsandbytes 0.50, computed in f32, to the bit;
// the mean is rounded once (bitsandbytes sums in f32).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/host_device.h"
#include "tensor/shape.h"

namespace dltrain {

enum class WeightFormat : uint8_t { wide, int8, nf4 };

struct WeightCodes {
  WeightFormat format = WeightFormat::wide;
  bool double_quantization = false;  // of nf4
};

inline constexpr int64_t kNf4Block = 64;      // elements with one absmax
inline constexpr int64_t kNestedBlock = 256;  // codes of absmax with one scale
inline constexpr float kInt8Step = 1.0f / 127;

// A tensor of a weight in codes, in the order of the inputs of dequantize:
//   codes   u8 [rows, columns], or of nf4 [⌈elements / 2⌉]
//   absmax  f32 [rows], or of nf4 [blocks]; with double quantisation u8
//   nested  with double quantisation: f32 [1 + ⌈blocks / 256⌉], the mean and the scales
struct CodedPart {
  const char* kind;
  TensorSpec spec;
};
std::vector<CodedPart> coded_parts(WeightCodes codes, int64_t rows, int64_t columns);

// Returns the bytes of each part for a weight [rows, columns].
std::vector<std::vector<std::byte>> encode_weight(WeightCodes codes, int64_t rows, int64_t columns,
                                                  std::span<const float> weight);
// The inverse but for the rounding to codes.
std::vector<float> decode_weight(WeightCodes codes, int64_t rows, int64_t columns,
                                 const std::vector<std::vector<std::byte>>& parts);

// Returns the factor of the codes of a block of nf4. `table`: dynamic_codes(true), for a weight
// with `nested`. T is float, or double for exact results of tests.
template <typename T>
DLTRAIN_HD T nf4_scale(const void* absmax, const T* nested, const float* table, int64_t block) {
  if (nested == nullptr) return static_cast<const T*>(absmax)[block];
  const T code = table[static_cast<const uint8_t*>(absmax)[block]];
  const T scale = nested[1 + block / kNestedBlock];
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == sizeof(float)) return __fadd_rn(__fmul_rn(code, scale), nested[0]);
#endif
  return code * scale + nested[0];  // two roundings: no engine may contract them
}

}  // namespace dltrain
