// batch_norm, its gradient, its inference form and the update of the running statistics. Statistics
// are taken in two passes. Gradient: Ioffe & Szegedy 2015, section 3.
#include <cmath>

#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

struct Channels {
  explicit Channels(const NaiveCall& c)
      : channels(c.inputs[0].shape[-1]),
        rows(c.inputs[0].shape.elements() / channels),
        epsilon(c.attributes.number("epsilon", 1e-5)),
        relu(c.attributes.text("activation") == "relu") {}

  int64_t channels, rows;
  double epsilon;
  bool relu;
};

}  // namespace

std::unique_ptr<Kernel> reference_batch_norm(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Channels s(c);
    const T *x = c.input<T>(0), *gamma = c.input<T>(1), *beta = c.input<T>(2);
    const auto count = static_cast<double>(s.rows);
    for (int64_t k = 0; k < s.channels; ++k) {
      double mean = 0, variance = 0;
      for (int64_t r = 0; r < s.rows; ++r) mean += x[r * s.channels + k] / count;
      for (int64_t r = 0; r < s.rows; ++r) {
        variance += std::pow(x[r * s.channels + k] - mean, 2) / count;
      }
      c.put<T>(1, k, mean);
      c.put<T>(2, k, variance);
      // Use the rounded statistics: the gradient of a fused relu recomputes the mask from them.
      if (s.relu) {
        mean = static_cast<T>(mean);
        variance = static_cast<T>(variance);
      }
      const double scale = gamma[k] / std::sqrt(variance + s.epsilon);
      for (int64_t i = k; i < s.rows * s.channels; i += s.channels) {
        double y = (x[i] - mean) * scale + beta[k];
        if (c.has_input(3)) y += c.input<T>(3)[i];
        c.put<T>(0, i, s.relu && y < 0 ? 0 : y);
      }
    }
  });
}

// With x̂ = (x − mean)/√(variance + ε): dβ = Σdy, dγ = Σdy·x̂,
// dx = γ/√(variance + ε)·(dy − dβ/n − x̂·dγ/n). With relu dy is 0 where the forward was not above 0.
std::unique_ptr<Kernel> reference_batch_norm_backward(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Channels s(c);
    const T *x = c.input<T>(0), *gamma = c.input<T>(2);
    const T *mean = c.input<T>(3), *variance = c.input<T>(4);
    const auto count = static_cast<double>(s.rows);
    for (int64_t k = 0; k < s.channels; ++k) {
      const double scale = 1 / std::sqrt(variance[k] + s.epsilon);
      const auto normalised = [&](int64_t i) { return (x[i] - double{mean[k]}) * scale; };
      const auto dy = [&](int64_t i) -> double {
        const double slope = gamma[k] / std::sqrt(variance[k] + s.epsilon);
        const bool on = !s.relu || (x[i] - double{mean[k]}) * slope + c.input<T>(5)[k] > 0;
        return on ? c.input<T>(1)[i] : 0;
      };
      double dgamma = 0, dbeta = 0;
      for (int64_t i = k; i < s.rows * s.channels; i += s.channels) {
        dgamma += dy(i) * normalised(i);
        dbeta += dy(i);
      }
      for (int64_t i = k; i < s.rows * s.channels; i += s.channels) {
        const double centred = dy(i) - dbeta / count - normalised(i) * dgamma / count;
        c.put<T>(0, i, gamma[k] * scale * centred);
      }
      c.put<T>(1, k, dgamma);
      c.put<T>(2, k, dbeta);
    }
  });
}

std::unique_ptr<Kernel> reference_batch_norm_inference(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Channels s(c);
    const T *x = c.input<T>(0), *gamma = c.input<T>(1), *beta = c.input<T>(2);
    const T *mean = c.input<T>(3), *variance = c.input<T>(4);
    for (int64_t i = 0; i < s.rows * s.channels; ++i) {
      const int64_t k = i % s.channels;
      const double scale = gamma[k] / std::sqrt(variance[k] + s.epsilon);
      c.put<T>(0, i, (x[i] - double{mean[k]}) * scale + beta[k]);
    }
  });
}

std::unique_ptr<Kernel> reference_batch_norm_update(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    if (c.input<StepState>(0)->out.finite == 0) return;
    const double momentum = c.attributes.number("momentum", 0.1);
    for (size_t statistic : {size_t{0}, size_t{1}}) {  // mean, variance
      const double factor = statistic == 0 ? 1 : c.attributes.number("unbias", 1);
      const T* sum = c.input<T>(3 + statistic);
      T* running = c.output<T>(statistic);
      for (int64_t k = 0; k < c.outputs[statistic].shape.elements(); ++k) {
        const double now = sum[k] / c.attributes.number("groups", 1) * factor;
        running[k] = static_cast<T>(running[k] + momentum * (now - running[k]));
      }
    }
  });
}

}  // namespace dltrain
