// softmax_cross_entropy and its gradient, row by row.
#include <algorithm>
#include <cmath>

#include "ops/rules.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

struct SoftmaxCrossEntropyRows {
  explicit SoftmaxCrossEntropyRows(const NaiveCall& c)
      : rows(c.inputs[1].shape.elements()),
        columns(c.inputs[0].shape[-1]),
        classes(cross_entropy_classes(c.inputs[0], c.attributes)),
        ignored(c.attributes.integer("ignore_index", -100)),
        smoothing(c.attributes.number("label_smoothing", 0)),
        z_loss(c.attributes.number("z_loss", 0)) {}

  // Returns the target distribution at class k.
  double wanted(int64_t target, int64_t k) const {
    return (k == target ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
  }

  int64_t rows, columns, classes, ignored;
  double smoothing, z_loss;
};

}  // namespace

std::unique_ptr<Kernel> reference_softmax_cross_entropy(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const SoftmaxCrossEntropyRows s(c);
    double loss = 0, correct = 0;
    for (int64_t r = 0; r < s.rows; ++r) {
      const T* logits = c.input<T>(0) + r * s.columns;
      const int64_t target = c.input<int32_t>(1)[r];
      const T* greatest = std::max_element(logits, logits + s.classes);  // the first on ties
      double sum = 0;
      for (int64_t k = 0; k < s.classes; ++k) sum += std::exp(logits[k] - double{*greatest});
      const double log_sum_exp = *greatest + std::log(sum);
      c.put<T>(1, r, log_sum_exp);
      if (target == s.ignored) continue;
      loss += s.z_loss * log_sum_exp * log_sum_exp;
      for (int64_t k = 0; k < s.classes; ++k)
        loss += s.wanted(target, k) * (log_sum_exp - logits[k]);
      correct += greatest - logits == target ? 1 : 0;
    }
    c.put<double>(0, 0, loss);
    c.put<double>(2, 0, correct);
  });
}

std::unique_ptr<Kernel> reference_softmax_cross_entropy_backward(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const SoftmaxCrossEntropyRows s(c);
    const double dloss = *c.input<double>(3);
    for (int64_t r = 0; r < s.rows; ++r) {
      const int64_t target = c.input<int32_t>(1)[r];
      const double log_sum_exp = c.input<T>(2)[r];
      for (int64_t k = 0; k < s.columns; ++k) {
        const int64_t i = r * s.columns + k;
        const double softmax =
            (1 + 2 * s.z_loss * log_sum_exp) * std::exp(c.input<T>(0)[i] - log_sum_exp);
        c.put<T>(
            0, i,
            target == s.ignored || k >= s.classes ? 0 : dloss * (softmax - s.wanted(target, k)));
      }
    }
  });
}

}  // namespace dltrain
