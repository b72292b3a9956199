// confusion_matrix, top_k_correct, regression_sums, binary_counts, source_sums.
#include <algorithm>
#include <cmath>

#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {

std::unique_ptr<Kernel> reference_confusion_matrix(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t classes = c.inputs[0].shape[-1];
    double* counts = c.output<double>(0);
    if (!c.accumulate) std::fill_n(counts, classes * classes, 0.0);
    for (int64_t r = 0; r < c.inputs[1].shape.elements(); ++r) {
      const int64_t label = c.input<int32_t>(1)[r];
      if (label < 0) continue;
      const T* row = c.input<T>(0) + r * classes;
      const int64_t taken = std::max_element(row, row + classes) - row;
      counts[label * classes + taken] += 1;
    }
  });
}

std::unique_ptr<Kernel> reference_top_k_correct(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t classes = c.inputs[0].shape[-1];
    const int64_t k = c.attributes.integer("k");
    double correct = 0;
    for (int64_t r = 0; r < c.inputs[1].shape.elements(); ++r) {
      const int64_t label = c.input<int32_t>(1)[r];
      if (label < 0) continue;
      const T* row = c.input<T>(0) + r * classes;
      if (std::isnan(row[label])) continue;
      int64_t before = 0;  // classes that are ranked above the label
      for (int64_t i = 0; i < classes; ++i) {
        before += row[i] > row[label] || (row[i] == row[label] && i < label) ? 1 : 0;
      }
      correct += before < k ? 1 : 0;
    }
    c.put<double>(0, 0, correct);
  });
}

std::unique_ptr<Kernel> reference_regression_sums(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t outputs = c.outputs[0].shape[0];
    for (int64_t o = 0; o < outputs; ++o) {
      double sums[5] = {0, 0, 0, 0, 0};
      for (int64_t i = o; i < c.inputs[0].shape.elements(); i += outputs) {
        const double t = c.input<T>(1)[i], d = c.input<T>(0)[i] - t;
        if (std::isnan(t)) continue;
        const double terms[5] = {1, std::abs(d), d * d, t, t * t};
        for (int k = 0; k < 5; ++k) sums[k] += terms[k];
      }
      for (int k = 0; k < 5; ++k) c.put<double>(0, o * 5 + k, sums[k]);
    }
  });
}

std::unique_ptr<Kernel> reference_binary_counts(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t outputs = c.outputs[0].shape[0];
    for (int64_t o = 0; o < outputs; ++o) {
      double counts[4] = {0, 0, 0, 0};
      for (int64_t i = o; i < c.inputs[0].shape.elements(); i += outputs) {
        const double t = c.input<T>(1)[i];
        if (std::isnan(t)) continue;
        const bool taken = c.input<T>(0)[i] > 0, wanted = t > 0.5;
        counts[taken ? (wanted ? 0 : 1) : (wanted ? 2 : 3)] += 1;
      }
      for (int k = 0; k < 4; ++k) c.put<double>(0, o * 4 + k, counts[k]);
    }
  });
}

std::unique_ptr<Kernel> reference_source_sums(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    std::vector<double> sums = c.zeros(0);
    for (int64_t r = 0; r < c.inputs[1].shape.elements(); ++r) {
      if (c.input<int32_t>(1)[r] < 0) continue;
      const auto source = static_cast<size_t>(c.input<int32_t>(2)[r]);
      sums[2 * source] += c.input<double>(0)[r];
      sums[2 * source + 1] += 1;
    }
    c.put_all<double>(0, sums);
  });
}

}  // namespace dltrain
