#include "nn/initializer.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "base/philox.h"
#include "tensor/normal_values.h"

namespace dltrain {
namespace {

// N(0, 1) cut at ±2, by bisection of the distribution function, so that one uniform number gives
// one element.
double truncated_standard_normal(uint64_t seed, uint64_t stream, size_t i) {
  const auto distribution = [](double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); };
  const double u = random_uniform(seed, stream, 0, i);
  const double wanted = distribution(-2) + u * (distribution(2) - distribution(-2));
  double low = -2, high = 2;
  for (int step = 0; step < 40; ++step) {
    const double midpoint = (low + high) / 2;
    (distribution(midpoint) < wanted ? low : high) = midpoint;
  }
  return (low + high) / 2;
}

// Computes orthonormal rows (or columns, if there are fewer) by Gram and Schmidt on a normal
// matrix, each vector twice ("twice is enough", Giraud and others 2005). The signs make the
// distribution uniform (Saxe, McClelland & Ganguli 2013).
void fill_orthogonal(const Initializer& initializer, uint64_t seed, uint64_t stream,
                     std::span<float> out) {
  const auto rows = static_cast<size_t>(initializer.rows);
  const size_t columns = rows == 0 ? 0 : out.size() / rows;
  const bool by_rows = rows <= columns;
  const size_t count = by_rows ? rows : columns, length = by_rows ? columns : rows;
  normal_values(seed, stream, 0, 0, 1, 0, out);
  std::vector<double> basis(out.begin(), out.end());
  for (size_t i = 0; i < count; ++i) {
    double* vector = basis.data() + i * length;
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t j = 0; j < i; ++j) {
        const double* other = basis.data() + j * length;
        double dot = 0;
        for (size_t k = 0; k < length; ++k) dot += vector[k] * other[k];
        for (size_t k = 0; k < length; ++k) vector[k] -= dot * other[k];
      }
      double square = 0;
      for (size_t k = 0; k < length; ++k) square += vector[k] * vector[k];
      for (size_t k = 0; k < length; ++k) vector[k] /= std::sqrt(square);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < length; ++k) {
      const size_t at = by_rows ? i * columns + k : k * columns + i;
      out[at] = static_cast<float>(basis[i * length + k] * initializer.value);
    }
  }
}

// Returns element i before scaling.
double standard_value(Initializer::Kind kind, uint64_t seed, uint64_t stream, size_t i) {
  switch (kind) {
    case Initializer::uniform:
      return 2.0 * random_uniform(seed, stream, 0, i) - 1.0;
    case Initializer::truncated_normal:
      return truncated_standard_normal(seed, stream, i);
    default:
      return 1;
  }
}

void fill(const Initializer& initializer, uint64_t seed, std::string_view name,
          std::span<float> out) {
  const uint64_t stream = random_stream("initial value of " + std::string(name));
  if (initializer.kind == Initializer::orthogonal) {
    return fill_orthogonal(initializer, seed, stream, out);
  }
  // An element depends on its number alone, so threads may take them in any order.
  constexpr size_t kPart = 4096;
  const auto parts = static_cast<int64_t>((out.size() + kPart - 1) / kPart);
#pragma omp parallel for schedule(static) if (parts > 4)
  for (int64_t part = 0; part < parts; ++part) {
    const size_t first = static_cast<size_t>(part) * kPart;
    const std::span<float> values = out.subspan(first, std::min(kPart, out.size() - first));
    if (initializer.kind == Initializer::normal) {
      normal_values(seed, stream, 0, first, initializer.value, initializer.mean, values);
      continue;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const double standard = standard_value(initializer.kind, seed, stream, first + i);
      values[i] = static_cast<float>(standard * initializer.value + initializer.mean);
    }
  }
}

}  // namespace

void initialize(const Initializer& initializer, uint64_t seed, std::string_view name,
                std::span<float> out) {
  fill(initializer, seed, name, out);
  const auto& [first, count] = initializer.zeros_at;
  const auto zeros = out.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  std::fill(zeros.begin(), zeros.end(), 0.0f);
}

}  // namespace dltrain
