// Small kernels of the step: loss_seed, batch_norm_update, and identity over f64 sums (metrics).
#include <cmath>

#include "cpu/makers.h"
#include "cpu/support.h"
#include "shared/make_kernel.h"
#include "shared/update_rules.h"

namespace dltrain {

std::unique_ptr<Kernel> make_loss_seed(const KernelRequest& request) {
  const std::vector<double> weights = request.attributes.numbers("weights");
  const auto count = static_cast<size_t>(request.outputs[0].shape[0]);
  return make_kernel([=](const Bindings& b, Stream&) {
    const auto& state = *b.input<StepState>(0);
    const auto* loss = b.input<double>(1);
    for (size_t i = 0; i < count; ++i) {
      const double weight = weights.empty() ? state.in.inverse_valid : weights[i];
      const bool finite = loss == nullptr || std::isfinite(loss[i]);
      b.output<double>(0)[i] = finite ? state.out.loss_scale * weight : NAN;
    }
  });
}

// Metrics are a few doubles: copied, or added to the sums of earlier micro-steps.
std::unique_ptr<Kernel> make_identity_f64(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f64) return nullptr;
  const int64_t count = request.outputs[0].shape.elements();
  return make_kernel([count, accumulate = request.accumulate](const Bindings& b, Stream&) {
    const auto* from = b.input<double>(0);
    auto* to = b.output<double>(0);
    for (int64_t i = 0; i < count; ++i) to[i] = from[i] + (accumulate ? to[i] : 0.0);
  });
}

// Inputs: state, mean, variance, the sums of both; in place.
std::unique_ptr<Kernel> make_batch_norm_update(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  const int64_t channels = request.inputs[1].shape.elements();
  const double momentum = request.attributes.number("momentum", 0.1);
  const double groups = request.attributes.number("groups", 1);
  const double unbias = request.attributes.number("unbias", 1);
  return make_kernel([=](const Bindings& b, Stream&) {
    if (b.input<StepState>(0)->out.finite == 0) return;
    const auto move = [&](void* statistic, const float* sum, double factor) {
      auto* running = static_cast<float*>(statistic);
      for (int64_t c = 0; c < channels; ++c) {
        running[c] = running_statistic(running[c], sum[c], momentum, groups, factor);
      }
    };
    move(b.inputs[1], b.input<float>(3), 1.0);
    move(b.inputs[2], b.input<float>(4), unbias);
  });
}

}  // namespace dltrain
