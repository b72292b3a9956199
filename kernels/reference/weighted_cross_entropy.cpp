// weighted_cross_entropy and its gradient, row by row.
#include <algorithm>
#include <cmath>

#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

template <typename T>
struct WeightedCrossEntropyRows {
  explicit WeightedCrossEntropyRows(const NaiveCall& c)
      : classes(c.inputs[0].shape[-1]),
        rows(c.inputs[0].shape.elements() / classes),
        labels(c.inputs[1].dtype == DType::i32),
        relative(c.attributes.boolean("relative")),
        smoothing(c.attributes.number("label_smoothing", 0)),
        scale(c.attributes.number("scale", 1)),
        weights(c.attributes.numbers("class_weights")) {}

  // Returns true if the row counts. `mask`: the index of the optional labels.
  bool counts(const NaiveCall& c, int64_t row, size_t mask) const {
    if (c.inputs.size() > mask && c.input<int32_t>(mask)[row] < 0) return false;
    return labels ? c.input<int32_t>(1)[row] >= 0 : !std::isnan(c.input<T>(1)[row * classes]);
  }
  // Returns the target distribution before smoothing.
  double target(const NaiveCall& c, int64_t row, int64_t k) const {
    if (labels) return c.input<int32_t>(1)[row] == k ? 1 : 0;
    return c.input<T>(1)[row * classes + k];
  }
  double weighted(const NaiveCall& c, int64_t row, int64_t k) const {
    const double smooth =
        (1 - smoothing) * target(c, row, k) + smoothing / static_cast<double>(classes);
    return weights.empty() ? smooth : weights[static_cast<size_t>(k)] * smooth;
  }
  int64_t best_target(const NaiveCall& c, int64_t row) const {
    int64_t best = 0;
    for (int64_t k = 1; k < classes; ++k) {
      if (target(c, row, k) > target(c, row, best)) best = k;
    }
    return best;
  }

  int64_t classes, rows;
  bool labels, relative;
  double smoothing, scale;
  std::vector<double> weights;
};

template <typename T>
struct WeightedCrossEntropy : WeightedCrossEntropyRows<T> {
  using WeightedCrossEntropyRows<T>::WeightedCrossEntropyRows;

  void run(const NaiveCall& c) const {
    double loss = 0, correct = 0;
    for (int64_t r = 0; r < this->rows; ++r) {
      const T* logits = c.input<T>(0) + r * this->classes;
      const T* greatest = std::max_element(logits, logits + this->classes);
      double sum = 0;
      for (int64_t k = 0; k < this->classes; ++k) sum += std::exp(logits[k] - double{*greatest});
      const double log_sum_exp = *greatest + std::log(sum);
      c.put<T>(1, r, log_sum_exp);
      if (!this->counts(c, r, 2)) continue;
      for (int64_t k = 0; k < this->classes; ++k) {
        loss += this->weighted(c, r, k) * (log_sum_exp - logits[k]);
        const double t = this->target(c, r, k);
        if (this->relative && t > 0) loss += t * std::log(t);
      }
      correct += greatest - logits == this->best_target(c, r) ? 1 : 0;
    }
    c.put<double>(0, 0, this->scale * loss);
    c.put<double>(2, 0, correct);
  }
};

template <typename T>
struct WeightedCrossEntropyBackward : WeightedCrossEntropyRows<T> {
  using WeightedCrossEntropyRows<T>::WeightedCrossEntropyRows;

  void run(const NaiveCall& c) const {
    const double factor = this->scale * *c.input<double>(3);
    for (int64_t r = 0; r < this->rows; ++r) {
      const bool counts = this->counts(c, r, 4);
      double mass = 0;
      for (int64_t k = 0; counts && k < this->classes; ++k) mass += this->weighted(c, r, k);
      for (int64_t k = 0; k < this->classes; ++k) {
        const int64_t i = r * this->classes + k;
        const double softmax = std::exp(c.input<T>(0)[i] - double{c.input<T>(2)[r]});
        c.put<T>(0, i, counts ? factor * (softmax * mass - this->weighted(c, r, k)) : 0);
      }
    }
  }
};

}  // namespace

std::unique_ptr<Kernel> reference_weighted_cross_entropy(const KernelRequest& request) {
  return make_naive<WeightedCrossEntropy>(request);
}
std::unique_ptr<Kernel> reference_weighted_cross_entropy_backward(const KernelRequest& request) {
  return make_naive<WeightedCrossEntropyBackward>(request);
}

}  // namespace dltrain
