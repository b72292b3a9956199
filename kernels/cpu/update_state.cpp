// clip_percentile and ema_update.
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "cpu/tensor_chunks.h"
#include "shared/update_groups.h"

namespace dltrain {
namespace {

class ClipPercentile final : public Kernel {
 public:
  explicit ClipPercentile(const KernelRequest& request)
      : attributes_(clip_percentile_attributes(request.attributes)),
        window_(request.inputs[1].shape.elements()) {}

  void bind(const Bindings& bindings) override {
    state_ = input<StepState>(bindings, 0);
    norms_ = input<float>(bindings, 1);
  }
  void run(Stream&) override { clip_percentile(attributes_, *state_, norms_, window_); }

 private:
  ClipPercentileAttributes attributes_;
  int64_t window_;
  StepState* state_ = nullptr;
  float* norms_ = nullptr;
};

class EmaUpdate final : public Kernel {
 public:
  explicit EmaUpdate(const KernelRequest& request)
      : attributes_(ema_attributes(request.attributes)),
        count_(static_cast<size_t>(request.attributes.integer("count"))),
        chunks_(request.inputs.subspan(1, count_)) {}

  void bind(const Bindings& bindings) override {
    state_ = input<const StepState>(bindings, 0);
    tensors_.assign(bindings.inputs.begin() + 1, bindings.inputs.end());
  }
  void run(Stream&) override {
    if (state_->out.finite == 0) return;
    const auto share = static_cast<float>(ema_share(attributes_, *state_));
    parallel_for(chunks_.size(), chunks_.grain(16384), [&](int64_t begin, int64_t end) {
      chunks_.for_each(begin, end, [&](int64_t, const TensorChunk& chunk) {
        const float* s = static_cast<const float*>(tensors_[chunk.tensor]) + chunk.begin;
        float* e = static_cast<float*>(tensors_[count_ + chunk.tensor]) + chunk.begin;
        if (share == 1) {
          std::copy(s, s + chunk.count, e);
          return;
        }
        for (int64_t i = 0; i < chunk.count; ++i) e[i] = e[i] + share * (s[i] - e[i]);
      });
    });
  }

 private:
  EmaAttributes attributes_;
  size_t count_;
  TensorChunks chunks_;
  const StepState* state_ = nullptr;
  std::vector<void*> tensors_;
};

}  // namespace

MadeKernel make_clip_percentile(const KernelRequest& request) {
  return std::make_unique<ClipPercentile>(request);
}

MadeKernel make_ema_update(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return std::make_unique<EmaUpdate>(request);
}

}  // namespace dltrain
