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

}  // namespace

std::unique_ptr<Kernel> reference_layer_norm(const KernelRequest& request) {
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

std::unique_ptr<Kernel> reference_layer_norm_backward(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const LayerNormRows s(c);
    const bool has_weight = c.has_input(2), has_bias = c.attributes.boolean("bias");
    const size_t residual = s.centred ? 5 : 4;
    const bool adds = c.has_input(residual), to_dy = c.attributes.boolean("adds_to_dy");
    const bool copies = c.outputs.size() > (has_weight ? 2u : 1u) + has_bias;
    const auto count = static_cast<double>(s.columns);
    std::vector<double> dweight(static_cast<size_t>(s.columns)), dbias(dweight);
    for (int64_t r = 0; r < s.rows; ++r) {
      const T* x = c.input<T>(0) + r * s.columns;
      const double mean = s.centred ? c.input<T>(3)[r] : 0;
      const double rstd = c.input<T>(s.centred ? 4 : 3)[r];
      const auto dy = [&](int64_t k) {
        const int64_t i = r * s.columns + k;
        return c.element(1, i) + (adds && to_dy ? c.element(residual, i) : 0);
      };
      const auto normalised = [&](int64_t k) { return (x[k] - mean) * rstd; };
      const auto g = [&](int64_t k) { return dy(k) * (has_weight ? c.input<T>(2)[k] : 1.0); };
      double plain = 0, weighted = 0;
      for (int64_t k = 0; k < s.columns; ++k) {
        if (s.centred) plain += g(k) / count;
        weighted += g(k) * normalised(k) / count;
        dweight[static_cast<size_t>(k)] += dy(k) * normalised(k);
        dbias[static_cast<size_t>(k)] += dy(k);
      }
      for (int64_t k = 0; k < s.columns; ++k) {
        const int64_t i = r * s.columns + k;
        const double before = adds && !to_dy ? c.element(residual, i) : 0;
        const T dx = static_cast<T>(before + rstd * (g(k) - plain - normalised(k) * weighted));
        c.put<T>(0, i, dx);
        if (copies) c.put_element(c.outputs.size() - 1, i, dx);
      }
    }
    if (has_weight) c.put_all<T>(1, dweight);
    if (has_bias) c.put_all<T>(has_weight ? 2 : 1, dbias);
  });
}

}  // namespace dltrain
