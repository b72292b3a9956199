// gradient_norm and sum_of_squares: squares are added in double per chunk, then the chunks in
// order.
#include "cpu/makers.h"
#include "cpu/sum_of_squares.h"
#include "cpu/tensor_chunks.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

// Calls use(sum, bindings) with the sum of squares of the inputs from `first` on.
template <typename Use>
std::unique_ptr<Kernel> make_square_sum(const KernelRequest& request, size_t first, Use use) {
  const TensorChunks chunks(request.inputs.subspan(first));
  const auto run = [=](const Bindings& b, Stream&) {
    auto* sums = static_cast<double*>(b.workspace);
    chunks.parallel(32768, [&](int64_t c, const TensorChunk& chunk) {
      const float* x = b.input<float>(first + chunk.tensor);
      sums[c] = sum_of_squares(x + chunk.begin, chunk.count);
    });
    double sum = 0;
    for (int64_t c = 0; c < chunks.size(); ++c) sum += sums[c];
    use(sum, b);
  };
  return make_kernel(run, static_cast<size_t>(chunks.size()) * sizeof(double));
}

}  // namespace

std::unique_ptr<Kernel> make_gradient_norm(const KernelRequest& request) {
  for (const TensorSpec& spec : request.inputs.subspan(1)) {
    if (spec.dtype != DType::f32) return nullptr;
  }
  return make_square_sum(request, 1, [](double sum, const Bindings& b) {
    finish_gradient_norm(*static_cast<StepState*>(b.inputs[0]), sum);
  });
}

std::unique_ptr<Kernel> make_sum_of_squares(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f32) return nullptr;
  return make_square_sum(request, 0,
                         [](double sum, const Bindings& b) { *b.output<double>(0) = sum; });
}

}  // namespace dltrain
