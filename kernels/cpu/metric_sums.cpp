// confusion_matrix, top_k_correct, regression_sums, binary_counts: only used in evaluation, so
// plain loops in the order of the samples. Likewise source_sums, which reads a number a row.
#include <algorithm>
#include <cmath>

#include "cpu/makers.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

// work(bindings, sums) adds to the sums, which are the output.
template <typename Work>
std::unique_ptr<Kernel> make_metric_sums(const KernelRequest& request, Work work) {
  return make_kernel([work, count = request.outputs[0].shape.elements(),
                      accumulate = request.accumulate](const Bindings& b, Stream&) {
    auto* sums = b.output<double>(0);
    if (!accumulate) std::fill_n(sums, count, 0.0);
    work(b, sums);
  });
}

}  // namespace

std::unique_ptr<Kernel> make_confusion_matrix(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f32) return nullptr;
  const int64_t rows = request.inputs[1].shape.elements(), classes = request.inputs[0].shape[-1];
  return make_metric_sums(request, [=](const Bindings& b, double* counts) {
    const auto* labels = b.input<int32_t>(1);
    for (int64_t r = 0; r < rows; ++r) {
      if (labels[r] < 0) continue;
      const float* row = b.input<float>(0) + r * classes;
      counts[labels[r] * classes + (std::max_element(row, row + classes) - row)] += 1;
    }
  });
}

std::unique_ptr<Kernel> make_top_k_correct(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f32) return nullptr;
  const int64_t rows = request.inputs[1].shape.elements(), classes = request.inputs[0].shape[-1];
  const int64_t k = request.attributes.integer("k");
  return make_metric_sums(request, [=](const Bindings& b, double* correct) {
    const auto* labels = b.input<int32_t>(1);
    for (int64_t r = 0; r < rows; ++r) {
      if (labels[r] < 0) continue;
      const float* row = b.input<float>(0) + r * classes;
      const float own = row[labels[r]];
      if (std::isnan(own)) continue;
      const auto above = std::count_if(row, row + classes, [&](float x) { return x > own; });
      // The first of equal logits ranks higher.
      const auto equal = std::count(row, row + labels[r], own);
      *correct += above + equal < k ? 1 : 0;
    }
  });
}

std::unique_ptr<Kernel> make_regression_sums(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f32) return nullptr;
  const int64_t count = request.inputs[0].shape.elements(), outputs = request.outputs[0].shape[0];
  return make_metric_sums(request, [=](const Bindings& b, double* sums) {
    const auto *x = b.input<float>(0), *t = b.input<float>(1);
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
  });
}

std::unique_ptr<Kernel> make_binary_counts(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::f32) return nullptr;
  const int64_t count = request.inputs[0].shape.elements(), outputs = request.outputs[0].shape[0];
  return make_metric_sums(request, [=](const Bindings& b, double* counts) {
    const auto *x = b.input<float>(0), *t = b.input<float>(1);
    for (int64_t i = 0; i < count; ++i) {
      if (std::isnan(t[i])) continue;
      const bool taken = x[i] > 0, wanted = t[i] > 0.5f;
      counts[i % outputs * 4 + (taken ? (wanted ? 0 : 1) : (wanted ? 2 : 3))] += 1;
    }
  });
}

std::unique_ptr<Kernel> make_source_sums(const KernelRequest& request) {
  const int64_t rows = request.inputs[0].shape.elements();
  return make_metric_sums(request, [rows](const Bindings& b, double* sums) {
    const auto* losses = b.input<double>(0);
    const auto *targets = b.input<int32_t>(1), *sources = b.input<int32_t>(2);
    for (int64_t r = 0; r < rows; ++r) {
      if (targets[r] < 0) continue;
      sums[2 * sources[r]] += losses[r];
      sums[2 * sources[r] + 1] += 1;
    }
  });
}

}  // namespace dltrain
