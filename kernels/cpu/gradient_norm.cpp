// gradient_norm: squares are added in double, chunk by chunk, and the chunks in order.
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "cpu/tensor_chunks.h"
#include "shared/update_rules.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/gradient_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dltrain {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

double sum_of_squares(const float* x, int64_t count) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  const auto add = [&](auto& sum, const float* from) HWY_ATTR {
    const auto v = hn::PromoteTo(d, hn::LoadU(half, from));
    sum = hn::MulAdd(v, v, sum);
  };
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    add(s0, x + i);
    add(s1, x + i + lanes);
    add(s2, x + i + 2 * lanes);
    add(s3, x + i + 3 * lanes);
  }
  s0 = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
  double sum = hn::GetLane(hn::SumOfLanes(d, s0));
  for (; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dltrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(sum_of_squares);

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
    const auto function = HWY_DYNAMIC_DISPATCH(sum_of_squares);
    parallel_for(chunks_.size(), 2, [&](int64_t begin, int64_t end) {
      chunks_.for_each(begin, end, [&](int64_t c, const TensorChunk& chunk) {
        const auto* x = static_cast<const float*>(gradients_[chunk.tensor]);
        sums_[c] = function(x + chunk.begin, chunk.count);
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
#endif
