// gradient_norm: squares are added in double, chunk by chunk, and the chunks in order.
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/sum_of_squares.h"
#include "cpu/support.h"
#include "cpu/tensor_chunks.h"

namespace dltrain {
namespace {

class GradientNorm final : public Kernel {
 public:
  explicit GradientNorm(const KernelRequest& request) : chunks_(request.inputs.subspan(1)) {}

  size_t workspace_bytes() const override {
    return static_cast<size_t>(chunks_.size()) * sizeof(double);
  }

  void bind(const Bindings& bindings) override {
    state_ = input<StepState>(bindings, 0);
    gradients_.assign(bindings.inputs.begin() + 1, bindings.inputs.end());
    sums_ = static_cast<double*>(bindings.workspace);
  }

  void run(Stream&) override {
    parallel_for(chunks_.size(), 2, [&](int64_t begin, int64_t end) {
      chunks_.for_each(begin, end, [&](int64_t c, const TensorChunk& chunk) {
        const auto* x = static_cast<const float*>(gradients_[chunk.tensor]);
        sums_[c] = sum_of_squares(x + chunk.begin, chunk.count);
      });
    });
    double sum = 0;
    for (int64_t c = 0; c < chunks_.size(); ++c) sum += sums_[c];
    finish_gradient_norm(*state_, sum);
  }

 private:
  TensorChunks chunks_;
  std::vector<void*> gradients_;
  StepState* state_ = nullptr;
  double* sums_ = nullptr;
};

}  // namespace

MadeKernel make_gradient_norm(const KernelRequest& request) {
  for (const TensorSpec& spec : request.inputs.subspan(1)) {
    if (spec.dtype != DType::f32) return nullptr;
  }
  return std::make_unique<GradientNorm>(request);
}

}  // namespace dltrain
