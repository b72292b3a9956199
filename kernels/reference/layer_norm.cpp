// layer_norm, rms_norm and their gradients. Statistics are taken in two passes.
//
// With x̂ = (x − mean)·rstd and g = dy·weight: dweight = Σ dy·x̂, dbias = Σ dy,
// dx = rstd·(g − mean(g) − x̂·mean(g·x̂)); rms_norm has no mean and no mean(g).
#include <cmath>

#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

struct LayerNormRows {
  explicit LayerNormRows(const NaiveCall& c)
      : columns(c.inputs[0].shape[-1]),
        rows(c.inputs[0].shape.elements() / columns),
        epsilon(c.attributes.number("epsilon")),
        centred(c.op.starts_with("layer_norm")) {}

  int64_t columns, rows;
  double epsilon;
  bool centred;  // layer_norm
};

template <typename T>
struct LayerNormBackward : LayerNormRows {
  explicit LayerNormBackward(const NaiveCall& c)
      : LayerNormRows(c), bias(c.attributes.boolean("bias")) {}

  void run(const NaiveCall& c) const {
    std::vector<double> dweight(static_cast<size_t>(columns)), dbias(dweight);
    for (int64_t r = 0; r < rows; ++r) row(c, r, dweight, dbias);
    size_t output = 1;
    const auto write = [&](const std::vector<double>& sums) {
      for (size_t k = 0; k < sums.size(); ++k) {
        c.put<T>(output, static_cast<int64_t>(k), sums[k]);
      }
      ++output;
    };
    if (c.has_input(2)) write(dweight);
    if (bias) write(dbias);
  }

  void row(const NaiveCall& c, int64_t r, std::vector<double>& dweight,
           std::vector<double>& dbias) const {
    const T* x = c.input<T>(0) + r * columns;
    const auto dy = [&](int64_t k) { return c.element(1, r * columns + k); };
    const size_t residual = centred ? 5 : 4;
    const double mean = centred ? c.input<T>(3)[r] : 0, rstd = c.input<T>(centred ? 4 : 3)[r];
    const auto normalised = [&](int64_t k) { return (x[k] - mean) * rstd; };
    const auto g = [&](int64_t k) { return dy(k) * (c.has_input(2) ? c.input<T>(2)[k] : 1.0); };
    const auto count = static_cast<double>(columns);
    const bool copies = c.outputs.size() > (c.has_input(2) ? 2u : 1u) + bias;
    double plain = 0, weighted = 0;
    for (int64_t k = 0; k < columns; ++k) {
      if (centred) plain += g(k) / count;
      weighted += g(k) * normalised(k) / count;
      dweight[static_cast<size_t>(k)] += dy(k) * normalised(k);
      dbias[static_cast<size_t>(k)] += dy(k);
    }
    for (int64_t k = 0; k < columns; ++k) {
      const double before = c.has_input(residual) ? c.element(residual, r * columns + k) : 0;
      const T dx = static_cast<T>(before + rstd * (g(k) - plain - normalised(k) * weighted));
      c.put<T>(0, r * columns + k, dx);
      if (copies) c.put_element(c.outputs.size() - 1, r * columns + k, dx);
    }
  }

  bool bias;
};

}  // namespace

KernelPointer reference_layer_norm(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const LayerNormRows s(c);
    const auto count = static_cast<double>(s.columns);
    const size_t delta = s.centred ? 3 : 2;  // the input, and the output x + delta
    const bool adds = c.has_input(delta), wide = c.attributes.boolean("wide");
    for (int64_t r = 0; r < s.rows; ++r) {
      std::vector<double> x(static_cast<size_t>(s.columns));
      for (int64_t k = 0; k < s.columns; ++k) {
        const int64_t i = r * s.columns + k;
        x[static_cast<size_t>(k)] = c.input<T>(0)[i] + (adds ? c.element(delta, i) : 0);
        if (adds) c.put<T>(delta, i, x[static_cast<size_t>(k)]);
      }
      double mean = 0, squares = 0;
      for (int64_t k = 0; s.centred && k < s.columns; ++k)
        mean += x[static_cast<size_t>(k)] / count;
      for (int64_t k = 0; k < s.columns; ++k)
        squares += std::pow(x[static_cast<size_t>(k)] - mean, 2) / count;
      const double rstd = 1 / std::sqrt(squares + s.epsilon);
      for (int64_t k = 0; k < s.columns; ++k) {
        const double weight = c.has_input(1) ? c.input<T>(1)[k] : 1;
        const double bias = s.centred && c.has_input(2) ? c.input<T>(2)[k] : 0;
        const double y = (x[static_cast<size_t>(k)] - mean) * rstd * weight + bias;
        c.put_element(0, r * s.columns + k, y);
        if (wide) c.put<T>(c.outputs.size() - 1, r * s.columns + k, y);
      }
      if (s.centred) c.put<T>(1, r, mean);
      c.put<T>(s.centred ? 2 : 1, r, rstd);
    }
  });
}

KernelPointer reference_layer_norm_backward(const KernelRequest& request) {
  return make_naive<LayerNormBackward>(request);
}

}  // namespace dltrain
