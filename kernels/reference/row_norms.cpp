// row_norms, by its formula.
#include <cmath>

#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {

std::unique_ptr<Kernel> reference_row_norms(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t columns = c.inputs[0].shape[1];
    const double scale = c.attributes.number("scale", 1);
    for (int64_t row = 0; row < c.inputs[0].shape[0]; ++row) {
      double sum = 0;
      for (int64_t k = row * columns; k < (row + 1) * columns; ++k) {
        sum += std::pow(double{c.input<T>(0)[k]} + scale * c.input<T>(1)[k], 2);
      }
      c.put<T>(0, row, std::sqrt(sum));
    }
  });
}

}  // namespace dltrain
