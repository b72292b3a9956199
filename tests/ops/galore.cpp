// galore_projection on gradients whose singular vectors are known.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "catch.h"
#include "ops/case.h"
#include "ops/runner.h"
#include "reference/engine.h"

using namespace dltrain;

namespace {

// Returns row `index` of an orthogonal matrix, that of the discrete cosine transform.
std::vector<double> orthogonal_row(int64_t size, int64_t index) {
  std::vector<double> out;
  for (int64_t i = 0; i < size; ++i) {
    const double angle = M_PI * (static_cast<double>(i) + 0.5) * static_cast<double>(index) /
                         static_cast<double>(size);
    out.push_back(std::sqrt((index == 0 ? 1.0 : 2.0) / static_cast<double>(size)) *
                  std::cos(angle));
  }
  return out;
}

// Returns the projection of Σ value[i] · uᵢ · vᵢᵀ, with u and v rows of orthogonal matrices of the
// sides.
std::vector<double> projection(Shape shape, const std::vector<double>& singular_values,
                               int64_t rank, bool randomized) {
  std::vector<double> g(static_cast<size_t>(shape.elements()));
  for (size_t s = 0; s < singular_values.size(); ++s) {
    const auto u = orthogonal_row(shape[0], static_cast<int64_t>(s));
    const auto v = orthogonal_row(shape[1], static_cast<int64_t>(s));
    for (size_t i = 0; i < u.size(); ++i) {
      for (size_t j = 0; j < v.size(); ++j) {
        g[i * v.size() + j] += singular_values[s] * u[i] * v[j];
      }
    }
  }
  StepState state = kCaseState;
  state.out.updates = 1;
  HostTensor step({Shape{static_cast<int64_t>(sizeof state)}, DType::u8});
  std::memcpy(step.data.data(), &state, sizeof state);
  HostTensor gradient({shape, DType::f64});
  std::memcpy(gradient.data.data(), g.data(), gradient.data.size());
  const HostTensor before({Shape{rank, std::min(shape[0], shape[1])}, DType::f64});
  OpRunner runner(reference_engine());
  const OpResult result =
      runner.run({.op = "galore_projection",
                  .attributes = {{"gap", int64_t{1}}, {"randomized", randomized}},
                  .inputs = {step, gradient, before}});
  REQUIRE(result.faults.empty());
  std::vector<double> out(static_cast<size_t>(before.spec.shape.elements()));
  std::memcpy(out.data(), result.outputs[0].data.data(), out.size() * sizeof(double));
  return out;
}

}  // namespace

TEST_CASE("a projection has the leading singular vectors of the shorter side, with fixed signs") {
  const std::vector<double> values{5, 9, 1, 0.25, 3};
  for (const Shape& shape : {Shape{6, 11}, Shape{11, 6}, Shape{7, 7}}) {
    const int64_t side = std::min(shape[0], shape[1]);
    const std::vector<double> found = projection(shape, values, 3, false);
    for (int64_t r = 0; r < 3; ++r) {
      const auto expected = orthogonal_row(side, std::array<int64_t, 3>{1, 0, 4}[r]);
      double dot = 0;
      for (int64_t i = 0; i < side; ++i) {
        dot += expected[static_cast<size_t>(i)] * found[static_cast<size_t>(r * side + i)];
      }
      INFO(to_string(shape) << ", vector " << r);
      CHECK(std::abs(dot) == Approx(1).epsilon(1e-12));
      const auto row =
          std::span(found).subspan(static_cast<size_t>(r * side), static_cast<size_t>(side));
      CHECK(*std::ranges::max_element(row, {}, [](double x) { return std::abs(x); }) > 0);
    }
  }
}

TEST_CASE("subspace iteration finds the subspace of the singular vectors") {
  std::vector<double> values;
  for (int i = 0; i < 40; ++i) values.push_back(std::pow(0.7, i));
  const Shape shape{40, 90};
  constexpr int64_t kRank = 6;
  const auto exact = projection(shape, values, kRank, false);
  const auto found = projection(shape, values, kRank, true);
  // The angle between the subspaces: the norm of what `found` has outside of `exact`.
  double outside = 0;
  for (int64_t r = 0; r < kRank; ++r) {
    std::vector<double> rest(found.begin() + r * shape[0], found.begin() + (r + 1) * shape[0]);
    for (int64_t e = 0; e < kRank; ++e) {
      double dot = 0;
      for (int64_t i = 0; i < shape[0]; ++i) {
        dot += found[static_cast<size_t>(r * shape[0] + i)] *
               exact[static_cast<size_t>(e * shape[0] + i)];
      }
      for (int64_t i = 0; i < shape[0]; ++i) {
        rest[static_cast<size_t>(i)] -= dot * exact[static_cast<size_t>(e * shape[0] + i)];
      }
    }
    for (double x : rest) outside += x * x;
  }
  const double sine = std::sqrt(outside);
  INFO("sine of the angle " << sine);
  CHECK(sine < 1e-6);
  CHECK(sine > 0);
}
