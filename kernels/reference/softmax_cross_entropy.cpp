// softmax_cross_entropy and its gradient, row by row.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/rules.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

template <typename T>
double log_sum_of(const T* logits, int64_t count, double greatest) {
  double sum = 0;
  for (int64_t k = 0; k < count; ++k) sum += std::exp(logits[k] - greatest);
  return greatest + std::log(sum);
}

struct SoftmaxCrossEntropyRows {
  explicit SoftmaxCrossEntropyRows(const NaiveCall& c)
      : rows(c.inputs[1].shape.elements()),
        columns(c.inputs[0].shape[-1]),
        classes(cross_entropy_classes(c.inputs[0], c.attributes)),
        first(c.attributes.integer("first_class")),
        all(c.attributes.integer("all_classes", classes)),
        ignored(c.attributes.integer("ignore_index", -100)),
        smoothing(c.attributes.number("label_smoothing", 0)),
        z_loss(c.attributes.number("z_loss", 0)) {}

  // Returns the target distribution at class k of the logits.
  double wanted(int64_t target, int64_t k) const {
    return (first + k == target ? 1 - smoothing : 0) + smoothing / static_cast<double>(all);
  }

  // Writes the loss of a row to output 3, which exists with the attribute row_losses.
  void put_loss(const NaiveCall& c, int64_t row, double loss) const {
    if (c.out.size() > 3) c.output<double>(3)[row] = loss;
  }

  // Adds a row to the loss and to those that are correct, and writes its loss to output 3; returns
  // its log_sum_exp.
  template <typename T>
  double add_row(const NaiveCall& c, int64_t row, double& loss, double& correct) const {
    const T* logits = c.input<T>(0) + row * columns;
    const int64_t target = c.input<int32_t>(1)[row];
    const T* greatest = std::max_element(logits, logits + classes);  // the first on ties
    const double log_sum_exp = log_sum_of(logits, classes, *greatest);
    put_loss(c, row, 0);
    if (target == ignored) return log_sum_exp;
    double own = z_loss * log_sum_exp * log_sum_exp;
    for (int64_t k = 0; k < classes; ++k) own += wanted(target, k) * (log_sum_exp - logits[k]);
    put_loss(c, row, own);
    loss += own;
    correct += greatest - logits == target ? 1 : 0;
    return log_sum_exp;
  }

  // Writes the gradient of a row to output 0.
  template <typename T>
  void put_gradient(const NaiveCall& c, int64_t row, double log_sum_exp, double dloss) const {
    const int64_t target = c.input<int32_t>(1)[row];
    for (int64_t k = 0; k < columns; ++k) {
      const int64_t i = row * columns + k;
      const double softmax =
          (1 + 2 * z_loss * log_sum_exp) * std::exp(c.input<T>(0)[i] - log_sum_exp);
      c.put<T>(0, i, target == ignored || k >= classes ? 0 : dloss * (softmax - wanted(target, k)));
    }
  }

  int64_t rows, columns, classes, first, all, ignored;
  double smoothing, z_loss;
};

std::unique_ptr<Kernel> reference_joined_cross_entropy(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const SoftmaxCrossEntropyRows s(c);
    const int64_t ranks = c.inputs[2].shape[0] / s.rows;
    double loss = 0, correct = 0;
    for (int64_t r = 0; r < s.rows; ++r) {
      std::vector<double> sums, greatest, aims, leads, totals;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const T* part = static_cast<const T*>(c.in[2]) + (rank * s.rows + r) * 5;
        for (auto* list : {&sums, &greatest, &aims, &leads, &totals}) list->push_back(*part++);
      }
      const double log_sum_exp =
          log_sum_of(sums.data(), ranks, *std::max_element(sums.begin(), sums.end()));
      c.put<T>(1, r, log_sum_exp);
      s.put_loss(c, r, 0);
      if (c.input<int32_t>(1)[r] == s.ignored) continue;
      const double aim = std::accumulate(aims.begin(), aims.end(), 0.0);
      const double mean =
          std::accumulate(totals.begin(), totals.end(), 0.0) / static_cast<double>(s.all);
      const double own = log_sum_exp - (1 - s.smoothing) * aim - s.smoothing * mean +
                         s.z_loss * log_sum_exp * log_sum_exp;
      s.put_loss(c, r, own);
      loss += own;
      correct += leads[static_cast<size_t>(std::max_element(greatest.begin(), greatest.end()) -
                                           greatest.begin())];
    }
    c.put<double>(0, 0, loss);
    c.put<double>(2, 0, correct);
  });
}

}  // namespace

std::unique_ptr<Kernel> reference_cross_entropy_parts(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const SoftmaxCrossEntropyRows s(c);
    for (int64_t r = 0; r < s.rows; ++r) {
      const T* logits = c.input<T>(0) + r * s.columns;
      const T* greatest = std::max_element(logits, logits + s.classes);
      const int64_t target = c.input<int32_t>(1)[r] - s.first;
      const bool here = target >= 0 && target < s.classes;
      const double total = s.smoothing > 0 ? std::accumulate(logits, logits + s.classes, 0.0) : 0;
      const double parts[]{log_sum_of(logits, s.classes, *greatest), *greatest,
                           here ? double{logits[target]} : 0,
                           here && greatest - logits == target ? 1.0 : 0.0, total};
      for (int64_t i = 0; i < 5; ++i) c.put<T>(0, r * 5 + i, parts[i]);
    }
  });
}

std::unique_ptr<Kernel> reference_softmax_cross_entropy(const KernelRequest& request) {
  if (request.inputs.size() > 2) return reference_joined_cross_entropy(request);
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const SoftmaxCrossEntropyRows s(c);
    double loss = 0, correct = 0;
    for (int64_t r = 0; r < s.rows; ++r) c.put<T>(1, r, s.add_row<T>(c, r, loss, correct));
    c.put<double>(0, 0, loss);
    c.put<double>(2, 0, correct);
  });
}

std::unique_ptr<Kernel> reference_softmax_cross_entropy_backward(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const SoftmaxCrossEntropyRows s(c);
    for (int64_t r = 0; r < s.rows; ++r) {
      s.put_gradient<T>(c, r, c.input<T>(2)[r], *c.input<double>(3));
    }
  });
}

std::unique_ptr<Kernel> reference_softmax_cross_entropy_gradient(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const SoftmaxCrossEntropyRows s(c);
    double loss = 0, correct = 0;
    for (int64_t r = 0; r < s.rows; ++r) {
      const T log_sum_exp = static_cast<T>(s.add_row<T>(c, r, loss, correct));
      s.put_gradient<T>(c, r, log_sum_exp, *c.input<double>(2));
    }
    c.put<double>(1, 0, loss);
    c.put<double>(2, 0, correct);
  });
}

}  // namespace dltrain
