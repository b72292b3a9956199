// group_norm and its gradient: the formulas of layer_norm over the places and channels of a group.
#include <cmath>

#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

struct Groups {
  explicit Groups(const NaiveCall& c)
      : samples(c.inputs[0].shape[0]),
        channels(c.inputs[0].shape[-1]),
        spatial_size(c.inputs[0].shape.elements() / samples / channels),
        groups(c.attributes.integer("groups", 1)),
        epsilon(c.attributes.number("epsilon")) {}

  // Calls f(element, channel) for every element of group `s`, counted over samples and groups.
  template <typename F>
  void visit(int64_t s, const F& f) const {
    const int64_t width = channels / groups, sample = s / groups, group = s % groups;
    for (int64_t p = 0; p < spatial_size; ++p) {
      for (int64_t k = group * width; k < (group + 1) * width; ++k) {
        f((sample * spatial_size + p) * channels + k, k);
      }
    }
  }
  double count() const {
    const int64_t width = channels / groups;
    return static_cast<double>(spatial_size * width);
  }

  int64_t samples, channels, spatial_size, groups;
  double epsilon;
};

}  // namespace

std::unique_ptr<Kernel> reference_group_norm(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Groups own(c);
    const T *x = c.input<T>(0), *weight = c.input<T>(1), *bias = c.input<T>(2);
    for (int64_t s = 0; s < own.samples * own.groups; ++s) {
      double mean = 0, variance = 0;
      own.visit(s, [&](int64_t i, int64_t) { mean += x[i] / own.count(); });
      own.visit(s, [&](int64_t i, int64_t) { variance += std::pow(x[i] - mean, 2) / own.count(); });
      const double rstd = 1 / std::sqrt(variance + own.epsilon);
      own.visit(s, [&](int64_t i, int64_t k) {
        const double normalised = (x[i] - mean) * rstd;
        c.put<T>(0, i, weight ? normalised * weight[k] + bias[k] : normalised);
      });
      c.put<T>(1, s, mean);
      c.put<T>(2, s, rstd);
    }
  });
}

std::unique_ptr<Kernel> reference_group_norm_backward(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Groups own(c);
    const T *x = c.input<T>(0), *dy = c.input<T>(1), *weights = c.input<T>(2);
    const auto weight = [&](int64_t k) { return weights ? double{weights[k]} : 1.0; };
    std::vector<double> dweight(static_cast<size_t>(own.channels)), dbias(dweight);
    for (int64_t s = 0; s < own.samples * own.groups; ++s) {
      const double mean = c.input<T>(3)[s], rstd = c.input<T>(4)[s];
      double plain = 0, weighted = 0;
      own.visit(s, [&](int64_t i, int64_t k) {
        const double normalised = (x[i] - mean) * rstd;
        dweight[static_cast<size_t>(k)] += dy[i] * normalised;
        dbias[static_cast<size_t>(k)] += dy[i];
        plain += dy[i] * weight(k) / own.count();
        weighted += dy[i] * weight(k) * normalised / own.count();
      });
      own.visit(s, [&](int64_t i, int64_t k) {
        const double normalised = (x[i] - mean) * rstd;
        c.put<T>(0, i, rstd * (dy[i] * weight(k) - plain - normalised * weighted));
      });
    }
    if (weights == nullptr) return;
    c.put_all<T>(1, dweight);
    c.put_all<T>(2, dbias);
  });
}

}  // namespace dltrain
