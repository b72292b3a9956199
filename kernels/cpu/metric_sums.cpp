// confusion_matrix, top_k_correct, regression_sums, binary_counts: only used in evaluation, so
// plain loops in the order of the samples. Likewise source_sums, which reads a number a row.
#include <algorithm>
#include <cmath>

#include "cpu/makers.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct LabelledRows {
  explicit LabelledRows(const KernelRequest& request)
      : rows(request.inputs[1].shape.elements()), classes(request.inputs[0].shape[-1]) {}
  int64_t rows, classes;
};

struct Confusion : LabelledRows {
  using LabelledRows::LabelledRows;

  void run(const float* logits, const int32_t* labels, double* counts) const {
    for (int64_t r = 0; r < rows; ++r) {
      if (labels[r] < 0) continue;
      const float* row = logits + r * classes;
      counts[labels[r] * classes + (std::max_element(row, row + classes) - row)] += 1;
    }
  }
};

struct TopK : LabelledRows {
  explicit TopK(const KernelRequest& request)
      : LabelledRows(request), k(request.attributes.integer("k")) {}

  void run(const float* logits, const int32_t* labels, double* correct) const {
    for (int64_t r = 0; r < rows; ++r) {
      if (labels[r] < 0) continue;
      const float* row = logits + r * classes;
      const float own = row[labels[r]];
      if (std::isnan(own)) continue;
      const auto above = std::count_if(row, row + classes, [&](float x) { return x > own; });
      const auto equal =
          std::count(row, row + labels[r], own);  // the first of equal logits ranks higher
      *correct += above + equal < k ? 1 : 0;
    }
  }
  int64_t k;
};

struct Elements {
  explicit Elements(const KernelRequest& request)
      : count(request.inputs[0].shape.elements()), outputs(request.outputs[0].shape[0]) {}
  int64_t count, outputs;
};

struct Regression : Elements {
  using Elements::Elements;

  void run(const float* x, const float* t, double* sums) const {
    for (int64_t i = 0; i < count; ++i) {
      if (std::isnan(t[i])) continue;
      const double target = t[i], d = x[i] - target;
      double* of_output = sums + i % outputs * 5;
      of_output[0] += 1;
      of_output[1] += std::abs(d);
      of_output[2] += d * d;
      of_output[3] += target;
      of_output[4] += target * target;
    }
  }
};

struct Binary : Elements {
  using Elements::Elements;

  void run(const float* x, const float* t, double* counts) const {
    for (int64_t i = 0; i < count; ++i) {
      if (std::isnan(t[i])) continue;
      const int which = (x[i] > 0 ? 0 : 2) + ((x[i] > 0) == (t[i] > 0.5f) ? 0 : 1);
      // 0: both positive, 1: only the output, 2: neither, 3: only the target
      constexpr int kPlace[] = {0, 1, 3, 2};
      counts[i % outputs * 4 + kPlace[which]] += 1;
    }
  }
};

// work.run(x, targets, sums).
template <typename Work, typename Target>
std::unique_ptr<Kernel> make_metric_sums(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f32) return nullptr;
  const int64_t count = request.outputs[0].shape.elements();
  const Work work(request);
  return make_kernel([work, count, accumulate = request.accumulate](const Bindings& b, Stream&) {
    auto* sums = b.output<double>(0);
    if (!accumulate) std::fill_n(sums, count, 0.0);
    work.run(b.input<float>(0), b.input<Target>(1), sums);
  });
}

}  // namespace

std::unique_ptr<Kernel> make_confusion_matrix(const KernelRequest& request) {
  return make_metric_sums<Confusion, int32_t>(request);
}
std::unique_ptr<Kernel> make_top_k_correct(const KernelRequest& request) {
  return make_metric_sums<TopK, int32_t>(request);
}
std::unique_ptr<Kernel> make_regression_sums(const KernelRequest& request) {
  return make_metric_sums<Regression, float>(request);
}
std::unique_ptr<Kernel> make_binary_counts(const KernelRequest& request) {
  return make_metric_sums<Binary, float>(request);
}

std::unique_ptr<Kernel> make_source_sums(const KernelRequest& request) {
  const int64_t rows = request.inputs[0].shape.elements();
  const int64_t count = request.outputs[0].shape.elements();
  return make_kernel([rows, count, accumulate = request.accumulate](const Bindings& b, Stream&) {
    const auto* losses = b.input<double>(0);
    const auto *targets = b.input<int32_t>(1), *sources = b.input<int32_t>(2);
    auto* sums = b.output<double>(0);
    if (!accumulate) std::fill_n(sums, count, 0.0);
    for (int64_t r = 0; r < rows; ++r) {
      if (targets[r] < 0) continue;
      sums[2 * sources[r]] += losses[r];
      sums[2 * sources[r] + 1] += 1;
    }
  });
}

}  // namespace dltrain
