// matmul: one dot product per output element.
#include "reference/call.h"
#include "reference/makers.h"
#include "shared/elementwise.h"

namespace dltrain {
std::unique_ptr<Kernel> reference_matmul(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const ElementwiseOp activation = activation_of(c.attributes.text("activation"));
    const Shape &a_shape = c.inputs[0].shape, &b_shape = c.inputs[1].shape;
    const int64_t rows = a_shape.elements(0, a_shape.rank() - 1), last = a_shape[-1];
    const bool ta = c.attributes.boolean("transpose_a"), tb = c.attributes.boolean("transpose_b");
    const int64_t m = ta ? last : rows, k = ta ? rows : last, n = b_shape[tb ? 0 : 1];
    const T *a = c.input<T>(0), *b = c.input<T>(1);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = c.has_input(2) ? c.input<T>(2)[j] : 0;
        for (int64_t l = 0; l < k; ++l) {
          sum += c.factor(a[ta ? l * last + i : i * last + l]) *
                 c.factor(b[tb ? j * k + l : l * n + j]);
        }
        c.put<T>(0, i * n + j, elementwise(activation, sum, 0.0, 0.0, 0.0));
      }
    }
  });
}

}  // namespace dltrain
