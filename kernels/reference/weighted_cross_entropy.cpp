// weighted_cross_entropy and its gradient, row by row.
#include <algorithm>
#include <cmath>

#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

template <typename T>
struct WeightedCrossEntropyRows {
  explicit WeightedCrossEntropyRows(const NaiveCall& call)
      : c(call),
        classes(c.inputs[0].shape[-1]),
        rows(c.inputs[0].shape.elements() / classes),
        labels(c.inputs[1].dtype == DType::i32),
        relative(c.attributes.boolean("relative")),
        smoothing(c.attributes.number("label_smoothing", 0)),
        scale(c.attributes.number("scale", 1)),
        weights(c.attributes.numbers("class_weights")) {}

  // Returns true if the row counts. `mask`: the index of the optional labels.
  bool counts(int64_t row, size_t mask) const {
    if (c.inputs.size() > mask && c.input<int32_t>(mask)[row] < 0) return false;
    return labels ? c.input<int32_t>(1)[row] >= 0 : !std::isnan(c.input<T>(1)[row * classes]);
  }
  // Returns the target distribution before smoothing.
  double target(int64_t row, int64_t k) const {
    if (labels) return c.input<int32_t>(1)[row] == k ? 1 : 0;
    return c.input<T>(1)[row * classes + k];
  }
  double weighted(int64_t row, int64_t k) const {
    const double smooth =
        (1 - smoothing) * target(row, k) + smoothing / static_cast<double>(classes);
    return weights.empty() ? smooth : weights[static_cast<size_t>(k)] * smooth;
  }
  int64_t best_target(int64_t row) const {
    int64_t best = 0;
    for (int64_t k = 1; k < classes; ++k) {
      if (target(row, k) > target(row, best)) best = k;
    }
    return best;
  }

  const NaiveCall& c;
  int64_t classes, rows;
  bool labels, relative;
  double smoothing, scale;
  std::vector<double> weights;
};

}  // namespace

std::unique_ptr<Kernel> reference_weighted_cross_entropy(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const WeightedCrossEntropyRows<T> s(c);
    double loss = 0, correct = 0;
    for (int64_t r = 0; r < s.rows; ++r) {
      const T* logits = c.input<T>(0) + r * s.classes;
      const T* greatest = std::max_element(logits, logits + s.classes);
      double sum = 0;
      for (int64_t k = 0; k < s.classes; ++k) sum += std::exp(logits[k] - double{*greatest});
      const double log_sum_exp = *greatest + std::log(sum);
      c.put<T>(1, r, log_sum_exp);
      if (!s.counts(r, 2)) continue;
      for (int64_t k = 0; k < s.classes; ++k) {
        const double q = s.weighted(r, k);
        if (q != 0) loss += q * (log_sum_exp - logits[k]);  // a logit may be −∞
        const double t = s.target(r, k);
        if (s.relative && t > 0) loss += t * std::log(t);
      }
      correct += greatest - logits == s.best_target(r) ? 1 : 0;
    }
    c.put<double>(0, 0, s.scale * loss);
    c.put<double>(2, 0, correct);
  });
}

std::unique_ptr<Kernel> reference_weighted_cross_entropy_backward(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const WeightedCrossEntropyRows<T> s(c);
    const double factor = s.scale * *c.input<double>(3);
    for (int64_t r = 0; r < s.rows; ++r) {
      const bool counts = s.counts(r, 4);
      double mass = 0;
      for (int64_t k = 0; counts && k < s.classes; ++k) mass += s.weighted(r, k);
      for (int64_t k = 0; k < s.classes; ++k) {
        const int64_t i = r * s.classes + k;
        const double softmax = std::exp(c.input<T>(0)[i] - double{c.input<T>(2)[r]});
        c.put<T>(0, i, counts ? factor * (softmax * mass - s.weighted(r, k)) : 0);
      }
    }
  });
}

}  // namespace dltrain
