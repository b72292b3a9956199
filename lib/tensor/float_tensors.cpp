#include "tensor/float_tensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "tensor/low_precision.h"

namespace dltrain {
namespace {

template <typename T>
std::vector<std::byte> converted(std::span<const float> values) {
  std::vector<std::byte> out(values.size() * sizeof(T));
#pragma omp parallel for schedule(static) if (values.size() > 65536)
  for (size_t i = 0; i < values.size(); ++i) {
    T element;
    if constexpr (sizeof(T) == 2) {
      from_f32(values[i], element);
    } else {
      element = values[i];
    }
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
  if (dtype == DType::f32) {
    out.resize(bytes.size() / sizeof(float));
    std::copy_n(bytes.data(), bytes.size(), std::as_writable_bytes(std::span(out)).data());
  }
  if (dtype == DType::f64) convert(double{}, [](double v) { return static_cast<float>(v); });
  if (dtype == DType::bf16) convert(Bf16{}, [](Bf16 v) { return to_f32(v); });
  if (dtype == DType::f16) convert(F16{}, [](F16 v) { return to_f32(v); });
  return out;
}

bool all_finite(std::span<const float> values) {
  uint32_t bad = 0;  // this loop is vectorised
  for (float x : values) bad |= (std::bit_cast<uint32_t>(x) & 0x7F800000u) == 0x7F800000u ? 1u : 0u;
  return bad == 0;
}

std::vector<std::byte> bytes_as(std::span<const float> values, DType dtype) {
  if (dtype == DType::bf16) return converted<Bf16>(values);
  if (dtype == DType::f16) return converted<F16>(values);
  if (dtype == DType::f64) return converted<double>(values);
  check_internal(dtype == DType::f32, "floats as {}", dtype_name(dtype));
  return converted<float>(values);
}

}  // namespace dltrain
