#include "tensor/weight_codes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tensor/block_codes.h"

namespace dltrain {
namespace {

constexpr float kLeastAbsmax = 1e-38f;  // of a divisor

int64_t blocks_of(int64_t count, int64_t block) {
  return (count + block - 1) / block;
}

float absmax_of(std::span<const float> values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::abs(value));
  return most;
}

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// Writes the codes of values within [−1, 1]: of each the number of middles between neighbours of
// the table that are below it.
void write_nf4(const std::array<float, kNf4Block>& values, uint8_t* to, int64_t bytes) {
  std::array<int, kNf4Block> codes{};
  for (size_t i = 0; i + 1 < kNf4Codes.size(); ++i) {
    const float middle = (kNf4Codes[i] + kNf4Codes[i + 1]) / 2;
    for (size_t k = 0; k < codes.size(); ++k) codes[k] += values[k] > middle ? 1 : 0;
  }
  for (size_t i = 0; i < static_cast<size_t>(bytes); ++i) {
    to[i] = static_cast<uint8_t>(codes[2 * i] << 4 | codes[2 * i + 1]);
  }
}

std::vector<std::vector<std::byte>> encode_nf4(std::span<const float> weight, bool nested) {
  const auto count = static_cast<int64_t>(weight.size());
  std::vector<uint8_t> codes(static_cast<size_t>(blocks_of(count, 2)));
  std::vector<float> absmax(static_cast<size_t>(blocks_of(count, kNf4Block)));
#pragma omp parallel for schedule(static)
  for (int64_t begin = 0; begin < count; begin += kNf4Block) {
    const bool whole = begin + kNf4Block <= count;
    const auto block = weight.subspan(static_cast<size_t>(begin),
                                      static_cast<size_t>(std::min(kNf4Block, count - begin)));
    float& most = absmax[static_cast<size_t>(begin / kNf4Block)];
    most = absmax_of(block);
    const float divisor = std::max(most, kLeastAbsmax), factor = 1 / divisor;
    if (!whole) most = divisor;
    std::array<float, kNf4Block> scaled{};
    for (size_t i = 0; i < block.size(); ++i) {
      scaled[i] = std::clamp(whole ? block[i] * factor : block[i] / divisor, -1.0f, 1.0f);
    }
    write_nf4(scaled, codes.data() + begin / 2, blocks_of(static_cast<int64_t>(block.size()), 2));
  }
  if (!nested) return {bytes_of(codes), bytes_of(absmax)};
  double sum = 0;
  for (const float value : absmax) sum += value;
  std::vector<float> scales{static_cast<float>(sum / static_cast<double>(absmax.size()))};
  const auto table = dynamic_codes(true);
  std::vector<uint8_t> absmax_codes;
  for (size_t begin = 0; begin < absmax.size(); begin += kNestedBlock) {
    const auto block =
        std::span(absmax).subspan(begin, std::min<size_t>(kNestedBlock, absmax.size() - begin));
    for (float& value : block) value -= scales[0];
    scales.push_back(absmax_of(block));
    const float divisor = std::max(scales.back(), kLeastAbsmax);
    for (const float value : block) absmax_codes.push_back(nearest_code(table, value / divisor));
  }
  return {bytes_of(codes), bytes_of(absmax_codes), bytes_of(scales)};
}

std::vector<std::vector<std::byte>> encode_int8(std::span<const float> weight, int64_t rows,
                                                int64_t columns) {
  std::vector<int8_t> codes(weight.size());
  std::vector<float> absmax(static_cast<size_t>(rows));
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    const auto first = static_cast<size_t>(r * columns);
    const auto row = weight.subspan(first, static_cast<size_t>(columns));
    float& most = absmax[static_cast<size_t>(r)];
    most = absmax_of(row);
    const float factor = 127 / std::max(most, kLeastAbsmax);
    for (size_t i = 0; i < row.size(); ++i) {
      codes[first + i] =
          static_cast<int8_t>(std::nearbyint(std::clamp(row[i] * factor, -127.0f, 127.0f)));
    }
  }
  return {bytes_of(codes), bytes_of(absmax)};
}

}  // namespace

std::vector<CodedPart> coded_parts(WeightCodes codes, int64_t rows, int64_t columns) {
  if (codes.format == WeightFormat::int8) {
    return {{"codes", {Shape{rows, columns}, DType::u8}}, {"absmax", {Shape{rows}, DType::f32}}};
  }
  const int64_t blocks = blocks_of(rows * columns, kNf4Block);
  std::vector<CodedPart> out{{"codes", {Shape{blocks_of(rows * columns, 2)}, DType::u8}},
                             {"absmax", {Shape{blocks}, DType::f32}}};
  if (!codes.double_quantization) return out;
  out[1].spec.dtype = DType::u8;
  out.push_back({"nested", {Shape{1 + blocks_of(blocks, kNestedBlock)}, DType::f32}});
  return out;
}

std::vector<std::vector<std::byte>> encode_weight(WeightCodes codes, int64_t rows, int64_t columns,
                                                  std::span<const float> weight) {
  return codes.format == WeightFormat::int8 ? encode_int8(weight, rows, columns)
                                            : encode_nf4(weight, codes.double_quantization);
}

std::vector<float> decode_weight(WeightCodes codes, int64_t rows, int64_t columns,
                                 const std::vector<std::vector<std::byte>>& parts) {
  std::vector<float> out(static_cast<size_t>(rows * columns));
  const auto* bytes = reinterpret_cast<const uint8_t*>(parts[0].data());
  const auto* absmax = reinterpret_cast<const float*>(parts[1].data());
  const auto* nested =
      codes.double_quantization ? reinterpret_cast<const float*>(parts[2].data()) : nullptr;
  const auto table = dynamic_codes(true);
  for (size_t i = 0; i < out.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    if (codes.format == WeightFormat::int8) {
      out[i] = static_cast<float>(static_cast<int8_t>(bytes[i])) * absmax[at / columns] * kInt8Step;
    } else {
      const int code = i % 2 == 0 ? bytes[i / 2] >> 4 : bytes[i / 2] & 15;
      out[i] = kNf4Codes[static_cast<size_t>(code)] *
               nf4_scale(absmax, nested, table.data(), at / kNf4Block);
    }
  }
  return out;
}

}  // namespace dltrain
