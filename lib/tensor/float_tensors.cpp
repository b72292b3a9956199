#include "tensor/float_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/low_precision.h"

namespace dltrain {
namespace {

template <typename T>
std::vector<std::byte> converted(std::span<const float> values) {
  std::vector<std::byte> out(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T element;
    from_f32(values[i], element);
    std::memcpy(out.data() + i * sizeof(T), &element, sizeof(T));
  }
  return out;
}

}  // namespace

std::vector<float> as_f32(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  return floats_of(file.data(entry), entry.spec.dtype);
}

std::vector<float> floats_of(std::span<const std::byte> bytes, DType dtype) {
  std::vector<float> out;
  const auto convert = [&]<typename T>(T element, auto to_float) {
    out.reserve(bytes.size() / sizeof(T));
    for (size_t at = 0; at < bytes.size(); at += sizeof(T)) {
      std::memcpy(&element, bytes.data() + at, sizeof(T));
      out.push_back(to_float(element));
    }
  };
  if (dtype == DType::f32) convert(float{}, [](float v) { return v; });
  if (dtype == DType::f64) convert(double{}, [](double v) { return static_cast<float>(v); });
  if (dtype == DType::bf16) convert(Bf16{}, [](Bf16 v) { return to_f32(v); });
  if (dtype == DType::f16) convert(F16{}, [](F16 v) { return to_f32(v); });
  return out;
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

std::vector<std::byte> bytes_as(std::span<const float> values, DType dtype) {
  if (dtype == DType::bf16) return converted<Bf16>(values);
  if (dtype == DType::f16) return converted<F16>(values);
  return converted<float>(values);
}

}  // namespace dltrain
