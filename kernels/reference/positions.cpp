// rotary and sinusoidal_positions, element by element.
#include "ops/positions.h"

#include <cmath>

#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

// Returns the position of row `row` of [samples, tokens].
int64_t position_of(const NaiveCall& c, int64_t row) {
  const int64_t tokens = c.inputs[0].shape[1];
  return TokenPositions(c.attributes)(row % tokens) +
         (c.has_input(1) ? c.input<int32_t>(1)[row / tokens] : 0);
}

}  // namespace

std::unique_ptr<Kernel> reference_rotary(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const int64_t dim = rotary_dim(c.inputs[0], c.attributes);
    const double sign = c.attributes.boolean("inverse") ? -1 : 1;
    const std::vector<double> frequencies(rotary_frequencies(c.attributes, dim));
    const Shape& shape = c.inputs[0].shape;
    const int64_t half = dim / 2, heads = shape[2], size = shape[3];
    for (int64_t row = 0; row < shape.elements(0, 3); ++row) {
      const int64_t token = position_of(c, row / heads);
      const T* x = c.input<T>(0) + row * size;
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(token) * frequencies[static_cast<size_t>(i)];
        const double cosine = std::cos(angle), sine = sign * std::sin(angle);
        const double a = x[i], b = x[i + half];
        c.put<T>(0, row * size + i, a * cosine - b * sine);
        c.put<T>(0, row * size + i + half, b * cosine + a * sine);
      }
      for (int64_t i = dim; i < size; ++i) c.put<T>(0, row * size + i, x[i]);
    }
  });
}

std::unique_ptr<Kernel> reference_sinusoidal_positions(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Shape& shape = c.inputs[0].shape;
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const double added = sinusoid(position_of(c, i / shape[2]), i % shape[2], shape[2]);
      c.put<T>(0, i, c.input<T>(0)[i] + added);
    }
  });
}

}  // namespace dltrain
