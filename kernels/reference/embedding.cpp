// embedding and its gradient.
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

template <typename T>
struct EmbeddingBackward {
  explicit EmbeddingBackward(const NaiveCall& c)
      : padding(c.attributes.integer("padding_idx", -1)) {}

  void run(const NaiveCall& c) const {
    const int64_t width = c.outputs[0].shape[1];
    std::vector<double> sums(static_cast<size_t>(c.outputs[0].shape.elements()));
    for (int64_t i = 0; i < c.inputs[1].shape.elements(); ++i) {
      const int64_t id = c.input<int32_t>(0)[i / width];
      if (id != padding) sums[static_cast<size_t>(id * width + i % width)] += c.input<T>(1)[i];
    }
    for (size_t i = 0; i < sums.size(); ++i) c.put<T>(0, static_cast<int64_t>(i), sums[i]);
  }

  int64_t padding;
};

}  // namespace

KernelPointer reference_embedding(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t width = c.inputs[1].shape[1];
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) {
      c.put<T>(0, i, c.input<T>(1)[c.input<int32_t>(0)[i / width] * width + i % width]);
    }
  });
}

KernelPointer reference_embedding_backward(const KernelRequest& request) {
  return make_naive<EmbeddingBackward>(request);
}

}  // namespace dltrain
