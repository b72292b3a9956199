// Element-wise ops with broadcasting, in double.
#include "ops/elementwise.h"

#include "reference/call.h"
#include "reference/indexing.h"
#include "reference/makers.h"
#include "shared/elementwise.h"

namespace dltrain {

std::unique_ptr<Kernel> reference_elementwise(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const ElementwiseOp op = elementwise_op(c.op).value();
    const ElementwiseNumbers n = elementwise_numbers(c.op, c.attributes);
    const Shape& y = c.outputs[0].shape;
    const size_t last = c.has_input(1) ? 1 : 0;
    for (int64_t i = 0; i < y.elements(); ++i) {
      const double a = c.input<T>(0)[broadcast_index(i, y, c.inputs[0].shape)];
      const double b = c.input<T>(last)[broadcast_index(i, y, c.inputs[last].shape)];
      c.put<T>(0, i, elementwise(op, a, b, n.p, n.q));
    }
  });
}

}  // namespace dltrain
