// Small kernels of the step: loss_seed, batch_norm_update, and identity over f64 sums (metrics).
#include <cmath>

#include "cpu/makers.h"
#include "cpu/support.h"
#include "shared/update_rules.h"

namespace dltrain {
namespace {

class LossSeed final : public Kernel {
 public:
  void bind(const Bindings& bindings) override {
    state_ = input<const StepState>(bindings, 0);
    loss_ = bindings.inputs.size() == 2 ? input<const double>(bindings, 1) : nullptr;
    out_ = output<double>(bindings, 0);
  }
  void run(Stream&) override {
    const bool finite = loss_ == nullptr || std::isfinite(*loss_);
    *out_ = finite ? state_->out.loss_scale * state_->in.inverse_valid : NAN;
  }

 private:
  const StepState* state_ = nullptr;
  const double* loss_ = nullptr;
  double* out_ = nullptr;
};

// Metrics are a few doubles: copied, or added to what earlier micro-steps left.
class IdentityF64 final : public Kernel {
 public:
  explicit IdentityF64(const KernelRequest& request)
      : count_(request.outputs[0].shape.elements()), accumulate_(request.accumulate) {}

  void bind(const Bindings& bindings) override {
    from_ = input<const double>(bindings, 0);
    to_ = output<double>(bindings, 0);
  }
  void run(Stream&) override {
    for (int64_t i = 0; i < count_; ++i) to_[i] = from_[i] + (accumulate_ ? to_[i] : 0.0);
  }

 private:
  int64_t count_;
  bool accumulate_;
  const double* from_ = nullptr;
  double* to_ = nullptr;
};

class BatchNormUpdate final : public Kernel {
 public:
  explicit BatchNormUpdate(const KernelRequest& request)
      : channels_(request.inputs[1].shape.elements()),
        momentum_(request.attributes.number("momentum", 0.1)),
        groups_(request.attributes.number("groups", 1)),
        unbias_(request.attributes.number("unbias", 1)) {}

  void bind(const Bindings& bindings) override {
    state_ = input<const StepState>(bindings, 0);
    mean_ = input<float>(bindings, 1);
    variance_ = input<float>(bindings, 2);
    mean_sum_ = input<const float>(bindings, 3);
    variance_sum_ = input<const float>(bindings, 4);
  }

  void run(Stream&) override {
    if (state_->out.finite == 0) return;
    for (int64_t c = 0; c < channels_; ++c) {
      mean_[c] = running_statistic(mean_[c], mean_sum_[c], momentum_, groups_, 1.0);
      variance_[c] = running_statistic(variance_[c], variance_sum_[c], momentum_, groups_, unbias_);
    }
  }

 private:
  int64_t channels_;
  double momentum_, groups_, unbias_;
  const StepState* state_ = nullptr;
  float *mean_ = nullptr, *variance_ = nullptr;
  const float *mean_sum_ = nullptr, *variance_sum_ = nullptr;
};

}  // namespace

MadeKernel make_loss_seed(const KernelRequest&) {
  return std::make_unique<LossSeed>();
}

MadeKernel make_identity_f64(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f64) return nullptr;
  return std::make_unique<IdentityF64>(request);
}

MadeKernel make_batch_norm_update(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return std::make_unique<BatchNormUpdate>(request);
}

}  // namespace dltrain
