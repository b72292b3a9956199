// dropout2d: a row of factors for each sample, drawn first, then multiplied into its pixels.
#include <algorithm>

#include "base/philox.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "ops/step_state.h"

namespace dltrain {
namespace {

class Dropout2d final : public Kernel {
 public:
  explicit Dropout2d(const KernelRequest& request)
      : samples_(request.inputs[0].shape[0]),
        channels_(request.inputs[0].shape[-1]),
        pixels_(request.inputs[0].shape.elements(1, request.inputs[0].shape.rank() - 1)),
        rate_(request.attributes.number("rate")),
        stream_(static_cast<uint64_t>(request.attributes.integer("stream"))) {}

  size_t workspace_bytes() const override {
    return static_cast<size_t>(samples_ * channels_) * sizeof(float);
  }

  void bind(const Bindings& bindings) override {
    x_ = input<const float>(bindings, 0);
    state_ = input<const StepState>(bindings, 1);
    y_ = output<float>(bindings, 0);
    factor_ = static_cast<float*>(bindings.workspace);
  }

  void run(Stream&) override {
    const StepInputs state = state_->in;
    const auto scale = static_cast<float>(1 / (1 - rate_));
    parallel_for(samples_ * channels_, 1024, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto index = static_cast<uint64_t>(state.sample_offset * channels_ + i);
        const double u =
            random_uniform(state.seed, stream_, static_cast<uint64_t>(state.step), index);
        factor_[i] = u >= rate_ ? scale : 0;
      }
    });
    const int64_t grain = std::max<int64_t>(1, 4096 / channels_);
    parallel_for(samples_ * pixels_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t pixel = begin; pixel < end; ++pixel) {
        const float* factor = factor_ + pixel / pixels_ * channels_;
        const float* from = x_ + pixel * channels_;
        float* to = y_ + pixel * channels_;
        // A dropped channel is 0 whatever it holds, infinities included.
        for (int64_t c = 0; c < channels_; ++c) to[c] = factor[c] == 0 ? 0 : from[c] * factor[c];
      }
    });
  }

 private:
  int64_t samples_, channels_, pixels_;
  double rate_;
  uint64_t stream_;
  const float* x_ = nullptr;
  const StepState* state_ = nullptr;
  float *y_ = nullptr, *factor_ = nullptr;
};

}  // namespace

MadeKernel make_dropout2d(const KernelRequest& request) {
  if (!computes_in_f32(request) || request.inputs[0].shape.elements() == 0) return nullptr;
  return std::make_unique<Dropout2d>(request);
}

}  // namespace dltrain
