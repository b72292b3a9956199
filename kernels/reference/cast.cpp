// cast to f32, f64, bf16 or f16 from f32, f64, bf16, f16, i32 or u8.
#include "reference/call.h"
#include "reference/makers.h"
#include "tensor/low_precision.h"

namespace dltrain {
namespace {

template <typename T>
constexpr bool kIsLow = std::is_same_v<T, Bf16> || std::is_same_v<T, F16>;

template <typename From, typename To>
struct Cast {
  explicit Cast(const NaiveCall&) {}

  void run(const NaiveCall& c) const {
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) {
      put(c, i, value(c.input<From>(0)[i]));
    }
  }

  static double value(From x) {
    if constexpr (kIsLow<From>) return to_f32(x);
    if constexpr (!kIsLow<From>) return static_cast<double>(x);
  }
  static void put(const NaiveCall& c, int64_t i, double value) {
    if constexpr (kIsLow<To>) {
      To& y = c.output<To>(0)[i];
      from_f32(static_cast<float>(c.accumulate ? to_f32(y) + value : value), y);
    } else {
      c.put<To>(0, i, value);
    }
  }
};

template <typename From>
KernelPointer make_from(const KernelRequest& request) {
  switch (request.outputs[0].dtype) {
    case DType::f32:
      return std::make_unique<NaiveKernel<Cast<From, float>>>(request);
    case DType::f64:
      return std::make_unique<NaiveKernel<Cast<From, double>>>(request);
    case DType::bf16:
      return std::make_unique<NaiveKernel<Cast<From, Bf16>>>(request);
    case DType::f16:
      return std::make_unique<NaiveKernel<Cast<From, F16>>>(request);
    default:
      return nullptr;
  }
}

}  // namespace

KernelPointer reference_cast(const KernelRequest& request) {
  switch (request.inputs[0].dtype) {
    case DType::f32:
      return make_from<float>(request);
    case DType::f64:
      return make_from<double>(request);
    case DType::bf16:
      return make_from<Bf16>(request);
    case DType::f16:
      return make_from<F16>(request);
    case DType::i32:
      return make_from<int32_t>(request);
    case DType::u8:
      return make_from<uint8_t>(request);
    default:
      return nullptr;
  }
}

}  // namespace dltrain
