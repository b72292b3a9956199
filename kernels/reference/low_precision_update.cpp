// low_precision_update: rounds each parameter to its copy.
#include "reference/call.h"
#include "reference/makers.h"
#include "tensor/low_precision.h"

namespace dltrain {
namespace {

template <typename Copy>
struct LowPrecisionUpdate {
  explicit LowPrecisionUpdate(const NaiveCall& c)
      : count(static_cast<size_t>(c.attributes.integer("count", 1))) {}

  void run(const NaiveCall& c) const {
    for (size_t i = 0; i < count; ++i) {
      const bool wide = c.inputs[1 + i].dtype == DType::f64;
      for (int64_t k = 0; k < c.outputs[i].shape.elements(); ++k) {
        const float p =
            wide ? static_cast<float>(c.input<double>(1 + i)[k]) : c.input<float>(1 + i)[k];
        from_f32(p, c.output<Copy>(i)[k]);
      }
    }
  }

  size_t count;
};

}  // namespace

KernelPointer reference_low_precision_update(const KernelRequest& request) {
  switch (request.outputs[0].dtype) {
    case DType::bf16:
      return std::make_unique<NaiveKernel<LowPrecisionUpdate<Bf16>>>(request);
    case DType::f16:
      return std::make_unique<NaiveKernel<LowPrecisionUpdate<F16>>>(request);
    default:
      return nullptr;
  }
}

}  // namespace dltrain
