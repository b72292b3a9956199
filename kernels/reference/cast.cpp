// cast to f32 or f64 from f32, f64, i32 or u8.
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

template <typename From, typename To>
struct Cast {
  explicit Cast(const NaiveCall&) {}

  void run(const NaiveCall& c) const {
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) {
      c.put<To>(0, i, static_cast<double>(c.input<From>(0)[i]));
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
    case DType::i32:
      return make_from<int32_t>(request);
    case DType::u8:
      return make_from<uint8_t>(request);
    default:
      return nullptr;
  }
}

}  // namespace dltrain
