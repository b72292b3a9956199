// clip_percentile, running_norm and ema_update, after lib/ops/update_state.cpp.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
std::unique_ptr<Kernel> reference_clip_percentile(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    StepState& state = *c.output<StepState>(0);
    T* norms = c.output<T>(1);
    if (state.out.finite == 0) return;
    const int64_t window = c.inputs[1].shape.elements();
    const int64_t n = std::min(state.out.updates - 1, window);
    if (n >= c.attributes.integer("min_history", 20) && n > 0) {
      std::vector<T> sorted(norms, norms + n);
      std::sort(sorted.begin(), sorted.end());
      const double rank =
          std::ceil(c.attributes.number("percentile", 90) * static_cast<double>(n) / 100);
      const double limit =
          c.attributes.number("factor", 1) * sorted[static_cast<size_t>(std::max(rank, 1.0)) - 1];
      double norm = state.out.grad_norm + 1e-6;
      if (state.in.max_grad_norm > 0) norm = std::min(norm, state.in.max_grad_norm);
      state.out.gradient_factor *= std::min(1.0, limit / norm);
    }
    norms[(state.out.updates - 1) % window] = static_cast<T>(state.out.grad_norm);
  });
}
std::unique_ptr<Kernel> reference_running_norm(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    StepResults& out = c.output<StepState>(0)->out;
    const double squares = *c.input<double>(1);
    const bool finite = std::isfinite(squares);
    double* previous = c.attributes.boolean("clips") ? c.output<double>(1) : nullptr;
    if (c.attributes.boolean("first")) {
      const double limit = c.output<StepState>(0)->in.max_grad_norm;
      const bool clips = previous != nullptr && limit > 0;
      out.gradient_factor =
          (clips ? std::min(1.0, limit / (*previous + 1e-6)) : 1) / out.loss_scale;
      out.updates += finite ? 1 : 0;
      out.finite = 1;
      out.grad_norm = 0;
    }
    out.grad_norm = std::hypot(out.grad_norm, std::sqrt(squares) / out.loss_scale);
    if (!finite) out.finite = 0;
    if (previous != nullptr && c.attributes.boolean("last") && out.finite != 0) {
      *previous = out.grad_norm;
    }
  });
}
std::unique_ptr<Kernel> reference_ema_update(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const StepState& state = *c.input<StepState>(0);
    if (state.out.finite == 0) return;
    const double decay = c.attributes.number("decay", 0.999);
    const auto k = static_cast<double>(state.out.updates - c.attributes.integer("start"));
    const double most = c.attributes.boolean("warmup") ? (1 + k) / (10 + k) : 1;
    const double d = k <= 1 ? 0 : std::min(decay, most);
    const auto count = static_cast<size_t>(c.attributes.integer("count", 1));
    for (size_t t = 0; t < count; ++t) {
      const T* s = c.input<T>(1 + t);
      T* e = c.output<T>(t);
      for (int64_t i = 0; i < c.outputs[t].shape.elements(); ++i) {
        e[i] = static_cast<T>(d * e[i] + (1 - d) * s[i]);
      }
    }
  });
}

}  // namespace dltrain
