// matmul: one dot product per output element.
#include "reference/call.h"
#include "reference/makers.h"
#include "shared/elementwise.h"

namespace dltrain {
namespace {

template <typename T>
struct Matmul {
  explicit Matmul(const NaiveCall& c) : activation(activation_of(c.attributes.text("activation"))) {
    const Shape &a = c.inputs[0].shape, &b = c.inputs[1].shape;
    const int64_t rows = a.elements(0, a.rank() - 1), last = a[-1];
    const bool ta = c.attributes.boolean("transpose_a"), tb = c.attributes.boolean("transpose_b");
    m = ta ? last : rows;
    k = ta ? rows : last;
    n = tb ? b[0] : b[1];
    a_row = ta ? 1 : last;
    a_inner = ta ? last : 1;
    b_inner = tb ? 1 : b[1];
    b_column = tb ? b[1] : 1;
  }

  void run(const NaiveCall& c) const {
    const T *a = c.input<T>(0), *b = c.input<T>(1);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = c.has_input(2) ? c.input<T>(2)[j] : 0;
        for (int64_t l = 0; l < k; ++l) {
          sum += static_cast<double>(a[i * a_row + l * a_inner]) * b[l * b_inner + j * b_column];
        }
        c.put<T>(0, i * n + j, elementwise(activation, sum, 0.0, 0.0, 0.0));
      }
    }
  }

  ElementwiseOp activation;
  int64_t m, k, n;
  int64_t a_row, a_inner, b_inner, b_column;  // strides
};

}  // namespace

std::unique_ptr<Kernel> reference_matmul(const KernelRequest& request) {
  return make_naive<Matmul>(request);
}

}  // namespace dltrain
