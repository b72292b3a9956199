// gradient_norm and sum_of_squares: squares are added in double, chunk by chunk, and the chunks in
// order.
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/sum_of_squares.h"
#include "cpu/support.h"
#include "cpu/tensor_chunks.h"

namespace dltrain {
namespace {

// The tensors are the inputs from `first` on.
class SquareSum : public Kernel {
 public:
  SquareSum(const KernelRequest& request, size_t first)
      : first_(first), chunks_(request.inputs.subspan(first)) {}

  size_t workspace_bytes() const override {
    return static_cast<size_t>(chunks_.size()) * sizeof(double);
  }

  void bind(const Bindings& bindings) override {
    tensors_.assign(bindings.inputs.begin() + static_cast<std::ptrdiff_t>(first_),
                    bindings.inputs.end());
    sums_ = static_cast<double*>(bindings.workspace);
  }

 protected:
  double sum() const {
    parallel_for(chunks_.size(), chunks_.grain(32768), [&](int64_t begin, int64_t end) {
      chunks_.for_each(begin, end, [&](int64_t c, const TensorChunk& chunk) {
        const auto* x = static_cast<const float*>(tensors_[chunk.tensor]);
        sums_[c] = sum_of_squares(x + chunk.begin, chunk.count);
      });
    });
    double sum = 0;
    for (int64_t c = 0; c < chunks_.size(); ++c) sum += sums_[c];
    return sum;
  }

 private:
  size_t first_;
  TensorChunks chunks_;
  std::vector<void*> tensors_;
  double* sums_ = nullptr;
};

class GradientNorm final : public SquareSum {
 public:
  explicit GradientNorm(const KernelRequest& request) : SquareSum(request, 1) {}
  void bind(const Bindings& bindings) override {
    SquareSum::bind(bindings);
    state_ = input<StepState>(bindings, 0);
  }
  void run(Stream&) override { finish_gradient_norm(*state_, sum()); }

 private:
  StepState* state_ = nullptr;
};

class SumOfSquares final : public SquareSum {
 public:
  explicit SumOfSquares(const KernelRequest& request) : SquareSum(request, 0) {}
  void bind(const Bindings& bindings) override {
    SquareSum::bind(bindings);
    result_ = output<double>(bindings, 0);
  }
  void run(Stream&) override { *result_ = sum(); }

 private:
  double* result_ = nullptr;
};

}  // namespace

MadeKernel make_gradient_norm(const KernelRequest& request) {
  for (const TensorSpec& spec : request.inputs.subspan(1)) {
    if (spec.dtype != DType::f32) return nullptr;
  }
  return std::make_unique<GradientNorm>(request);
}

MadeKernel make_sum_of_squares(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f32) return nullptr;
  return std::make_unique<SumOfSquares>(request);
}

}  // namespace dltrain
