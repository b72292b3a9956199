#include "comm/reduce.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "tensor/low_precision.h"

namespace dltrain {
namespace {

// Elements that are combined at a time; the work arrays fit into the first-level cache.
constexpr size_t kBlock = 512;

template <typename T>
constexpr bool kIsNarrow = std::is_same_v<T, Bf16> || std::is_same_v<T, F16>;
// The type in which elements are combined.
template <typename T>
using Accumulator = std::conditional_t<kIsNarrow<T>, float, T>;

template <typename T>
auto load(T x) {
  if constexpr (!kIsNarrow<T>) {
    return x;
  } else {
    return to_f32(x);
  }
}

template <typename T>
void store(Accumulator<T> value, T& to) {
  if constexpr (!kIsNarrow<T>) {
    to = value;
  } else {
    from_f32(value, to);
  }
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
    return a > b || a != a ? a : b;  // NOLINT(misc-redundant-expression): true for NaN
  }
};

template <typename T, typename Op>
struct Tree {
  using A = Accumulator<T>;
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

// Calls f with a value of the type of a reducible dtype.
template <typename F>
void with_reducible(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    case DType::bf16:
      return f(Bf16{});
    case DType::f16:
      return f(F16{});
    case DType::i32:
      return f(int32_t{});
    case DType::i64:
      return f(int64_t{});
    default:
      fail(ExitCode::internal, "internal error: no reduction of {} elements", dtype_name(dtype));
  }
}

}  // namespace

void reduce_parts(std::span<const void* const> parts, void* output, size_t count, DType dtype,
                  ReduceOp op) {
  with_reducible(dtype, [&]<typename T>(T) {
    if (op == ReduceOp::sum) {
      Tree<T, Sum>{parts}.run(static_cast<T*>(output), count);
    } else {
      Tree<T, Max>{parts}.run(static_cast<T*>(output), count);
    }
  });
}

DType accumulator_dtype(DType dtype) {
  return is_low_precision(dtype) ? DType::f32 : dtype;
}

void convert_parts(const void* from, DType from_dtype, void* to, DType to_dtype, size_t count) {
  if (from_dtype == to_dtype) {
    if (count > 0) std::memcpy(to, from, count * dtype_size(to_dtype));
    return;
  }
  with_reducible(from_dtype == DType::f32 ? to_dtype : from_dtype, [&]<typename T>(T) {
    if constexpr (kIsNarrow<T>) {
      for (size_t i = 0; i < count; ++i) {
        if (from_dtype == DType::f32) {
          store(static_cast<const float*>(from)[i], static_cast<T*>(to)[i]);
        } else {
          static_cast<float*>(to)[i] = load(static_cast<const T*>(from)[i]);
        }
      }
    }
  });
}

}  // namespace dltrain
