// cast to f32, f64, bf16 or f16 from f32, f64, bf16, f16, i32 or u8.
#include "ops/rules.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
std::unique_ptr<Kernel> reference_cast(const KernelRequest& request) {
  const DType from = request.inputs[0].dtype;
  const bool known = is_floating(from) || from == DType::i32 || from == DType::u8;
  if (!known || !is_floating(request.outputs[0].dtype)) return nullptr;
  return make_naive_of<double>(request, [](const NaiveCall& c, double) {
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) {
      c.put_element(0, i, c.element(0, i));
    }
  });
}

}  // namespace dltrain
