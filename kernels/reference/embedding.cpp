// embedding and its gradient.
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
std::unique_ptr<Kernel> reference_embedding(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t rows = c.inputs[1].shape[0], width = c.inputs[1].shape[1];
    const int64_t first = c.attributes.integer("first_row");
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) {
      const int64_t row = c.input<int32_t>(0)[i / width] - first;
      c.put<T>(0, i, row < 0 || row >= rows ? 0 : c.input<T>(1)[row * width + i % width]);
    }
  });
}

std::unique_ptr<Kernel> reference_embedding_backward(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t width = c.outputs[0].shape[1], padding = c.attributes.integer("padding_idx", -1);
    const int64_t rows = c.outputs[0].shape[0], first = c.attributes.integer("first_row");
    std::vector<double> sums = c.zeros(0);
    for (int64_t i = 0; i < c.inputs[1].shape.elements(); ++i) {
      const int64_t row = c.input<int32_t>(0)[i / width] - first;
      if (row == padding || row < 0 || row >= rows) continue;
      sums[static_cast<size_t>(row * width + i % width)] += c.input<T>(1)[i];
    }
    c.put_all<T>(0, sums);
  });
}

}  // namespace dltrain
