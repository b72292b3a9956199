// cast between f32, f64, bf16 and f16 (rounded to nearest, ties to even), and the copies of
// parameters in bf16 or f16.
#include "cpu/convert.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/tensor_chunks.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

constexpr int64_t kCastGrain = 8192;

template <typename From, typename To>
void cast_element(From x, To& y) {
  if constexpr (std::is_same_v<From, double>) {
    if constexpr (std::is_same_v<To, double>) {
      y = x;
    } else {
      from_f32(static_cast<float>(x), y);
    }
  } else if constexpr (std::is_same_v<To, double>) {
    y = to_f32(x);
  } else {
    from_f32(to_f32(x), y);
  }
}

template <typename From, typename To>
std::unique_ptr<Kernel> make_cast_of(int64_t count) {
  return make_kernel([count](const Bindings& b, Stream&) {
    const From* x = b.input<From>(0);
    To* y = b.output<To>(0);
    parallel_for(count, kCastGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) cast_element(x[i], y[i]);
    });
  });
}

// Between f32 and a 16-bit format, in vectors.
template <typename From, typename To, typename Function>
std::unique_ptr<Kernel> make_row_cast(int64_t count, Function function) {
  return make_kernel([=](const Bindings& b, Stream&) {
    parallel_for(count, kCastGrain, [&](int64_t begin, int64_t end) {
      function(b.input<From>(0) + begin, b.output<To>(0) + begin, end - begin);
    });
  });
}

template <typename From>
std::unique_ptr<Kernel> make_from(DType to, int64_t count) {
  if (to == DType::f64) return make_cast_of<From, double>(count);
  return with_element_type(to, [&]<typename To>(To) { return make_cast_of<From, To>(count); });
}

}  // namespace

std::unique_ptr<Kernel> make_cast(const KernelRequest& request) {
  const int64_t count = request.inputs[0].shape.elements();
  const DType from = request.inputs[0].dtype, to = request.outputs[0].dtype;
  if (is_low_precision(from) && to == DType::f32) {
    return make_row_cast<uint16_t, float>(count, widen_function(from));
  }
  if (from == DType::f32 && is_low_precision(to)) {
    return make_row_cast<float, uint16_t>(count, narrow_function(to));
  }
  if (from == DType::f64) return make_from<double>(to, count);
  return with_element_type(from, [&]<typename From>(From) { return make_from<From>(to, count); });
}

std::unique_ptr<Kernel> make_low_precision_update(const KernelRequest& request) {
  if (request.inputs[1].dtype != DType::f32 || !is_low_precision(request.outputs[0].dtype)) {
    return nullptr;
  }
  const auto count = static_cast<size_t>(request.attributes.integer("count", 1));
  const TensorChunks chunks(request.inputs.subspan(1, count));
  const NarrowFunction narrow = narrow_function(request.outputs[0].dtype);
  return make_kernel([=](const Bindings& b, Stream&) {
    chunks.parallel(32768, [&](int64_t, const TensorChunk& c) {
      auto* to = static_cast<uint16_t*>(b.inputs[1 + count + c.tensor]) + c.begin;
      narrow(b.input<float>(1 + c.tensor) + c.begin, to, c.count);
    });
  });
}

}  // namespace dltrain
