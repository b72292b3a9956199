#include "comm/reduce.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace dltrain {
namespace {

constexpr size_t kBlock =
    512;  // elements combined at a time; the work arrays stay in the first cache

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

template <typename T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<Bf16> {
  using type = float;
};
template <>
struct Accumulator<F16> {
  using type = float;
};

template <typename T>
T load(T x) {
  return x;
}
float load(Bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

// Exact: an f16 is an f32 scaled by 2^-112 after its bits are put in place.
float load(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7fffu) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  // Infinities and NaNs keep all exponent bits set.
  const uint32_t special = magnitude >= (0x7c00u << 13) ? 0x7f800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
}

template <typename T, typename A>
void store(A value, T& to) {
  to = value;
}
void store(float value, Bf16& to) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  to.bits = static_cast<uint16_t>((nan ? bits | 0x400000u : rounded) >> 16);
}
void store(float value, F16& to) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;
  } else if (magnitude >= 0x47800000u) {  // 2^16 and above
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: the adder rounds to multiples of 2^-24
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  to.bits = static_cast<uint16_t>(half | sign);
}

struct Sum {
  template <typename A>
  A operator()(A a, A b) const {
    if constexpr (std::is_integral_v<A>) {
      using U = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};

struct Max {
  template <typename A>
  A operator()(A a, A b) const {
    return a > b || a != a ? a : b;
  }
};

template <typename T, typename Op>
struct Tree {
  using A = typename Accumulator<T>::type;
  std::span<const void* const> parts;

  const T* part(size_t i) const { return static_cast<const T*>(parts[i]); }

  // Combines parts [first, first + n) of elements [begin, begin + count) into `result`.
  void combine(size_t first, size_t n, size_t begin, size_t count, A* result) const {
    const T* a = part(first) + begin;
    if (n == 1) {
      for (size_t i = 0; i < count; ++i) result[i] = load(a[i]);
      return;
    }
    if (n == 2) {
      const T* b = part(first + 1) + begin;
      for (size_t i = 0; i < count; ++i) result[i] = Op()(load(a[i]), load(b[i]));
      return;
    }
    const size_t left = std::bit_ceil(n) / 2;
    A other[kBlock];
    combine(first, left, begin, count, result);
    combine(first + left, n - left, begin, count, other);
    for (size_t i = 0; i < count; ++i) result[i] = Op()(result[i], other[i]);
  }

  void run(T* output, size_t count) const {
    if constexpr (std::is_same_v<T, A>) {
      if (parts.size() <= 2) return combine(0, parts.size(), 0, count, output);
    }
    A work[kBlock];
    for (size_t begin = 0; begin < count; begin += kBlock) {
      const size_t n = std::min(kBlock, count - begin);
      combine(0, parts.size(), begin, n, work);
      for (size_t i = 0; i < n; ++i) store(work[i], output[begin + i]);
    }
  }
};

template <typename T>
void reduce_typed(std::span<const void* const> parts, void* output, size_t count, ReduceOp op) {
  if (op == ReduceOp::sum) {
    Tree<T, Sum>{parts}.run(static_cast<T*>(output), count);
  } else {
    Tree<T, Max>{parts}.run(static_cast<T*>(output), count);
  }
}

}  // namespace

bool can_reduce(DType dtype) {
  return is_floating(dtype) || dtype == DType::i32 || dtype == DType::i64;
}

void reduce_parts(std::span<const void* const> parts, void* output, size_t count, DType dtype,
                  ReduceOp op) {
  switch (dtype) {
    case DType::f32:
      return reduce_typed<float>(parts, output, count, op);
    case DType::f64:
      return reduce_typed<double>(parts, output, count, op);
    case DType::bf16:
      return reduce_typed<Bf16>(parts, output, count, op);
    case DType::f16:
      return reduce_typed<F16>(parts, output, count, op);
    case DType::i32:
      return reduce_typed<int32_t>(parts, output, count, op);
    case DType::i64:
      return reduce_typed<int64_t>(parts, output, count, op);
    default:
      throw Error(ExitCode::internal, "internal error: no reduction of " +
                                          std::string(dtype_name(dtype)) + " elements");
  }
}

}  // namespace dltrain
