// galore_projection on gradients whose singular vectors are known, for every engine.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "catch.h"
#include "ops/case.h"
#include "ops/runner.h"

namespace dltrain {

// Returns row `index` of an orthogonal matrix, that of the discrete cosine transform.
inline std::vector<double> orthogonal_row(int64_t size, int64_t index) {
  std::vector<double> out;
  for (int64_t i = 0; i < size; ++i) {
    const double angle = M_PI * (static_cast<double>(i) + 0.5) * static_cast<double>(index) /
                         static_cast<double>(size);
    out.push_back(std::sqrt((index == 0 ? 1.0 : 2.0) / static_cast<double>(size)) *
                  std::cos(angle));
  }
  return out;
}

// The vectors of a projection, one after the other.
struct Projection {
  int64_t side;
  std::vector<double> values;

  std::span<const double> vector(int64_t index) const {
    return std::span(values).subspan(static_cast<size_t>(index * side), static_cast<size_t>(side));
  }
  double dot(int64_t index, std::span<const double> other) const {
    double sum = 0;
    for (size_t i = 0; i < other.size(); ++i) sum += vector(index)[i] * other[i];
    return sum;
  }
};

// Projects Σ value[i] · uᵢ · vᵢᵀ, with u and v rows of orthogonal matrices of the sides.
inline Projection project(const Engine& engine, Shape shape,
                          const std::vector<double>& singular_values, int64_t rank,
                          bool randomized) {
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
  OpRunner runner(engine);
  const OpResult result =
      runner.run({.op = "galore_projection",
                  .attributes = {{"gap", int64_t{1}}, {"randomized", randomized}},
                  .inputs = {step, gradient, before}});
  REQUIRE(result.faults.empty());
  Projection out{before.spec.shape[1],
                 std::vector<double>(static_cast<size_t>(before.spec.shape.elements()))};
  std::memcpy(out.values.data(), result.outputs[0].data.data(), out.values.size() * sizeof(double));
  return out;
}

// Checks that a projection has the leading singular vectors of the shorter side, with fixed signs.
inline void check_projections(const Engine& engine) {
  const std::vector<double> values{5, 9, 1, 0.25, 3};
  for (const Shape& shape : {Shape{6, 11}, Shape{11, 6}, Shape{7, 7}, Shape{45, 70}}) {
    for (const bool randomized : {false, true}) {
      const Projection found = project(engine, shape, values, 3, randomized);
      for (int64_t r = 0; r < 3; ++r) {
        const auto expected = orthogonal_row(found.side, std::array<int64_t, 3>{1, 0, 4}[r]);
        INFO(to_string(shape) << (randomized ? ", randomized" : "") << ", vector " << r);
        CHECK(std::abs(found.dot(r, expected)) == Approx(1).epsilon(1e-12));
        const auto size = [](double x) { return std::abs(x); };
        CHECK(*std::ranges::max_element(found.vector(r), {}, size) > 0);
      }
    }
  }
}

// Checks the projections of a gradient with fewer singular vectors than the rank, and of zeros.
inline void check_low_rank(const Engine& engine) {
  for (const bool randomized : {false, true}) {
    const Projection found = project(engine, {40, 90}, {2, 1}, 6, randomized);
    for (int64_t r = 0; r < 2; ++r) {
      CHECK(std::abs(found.dot(r, orthogonal_row(40, r))) == Approx(1).epsilon(1e-12));
    }
    for (int64_t r = 2; r < 6; ++r) {
      INFO((randomized ? "randomized" : "exact") << ", vector " << r);
      CHECK(found.dot(r, found.vector(r)) <= 1 + 1e-12);
      for (int64_t other = 0; other < 2; ++other) {
        CHECK(std::abs(found.dot(r, found.vector(other))) < 1e-7);
      }
    }
    const Projection nothing = project(engine, {40, 90}, {}, 6, randomized);
    CHECK(std::ranges::all_of(nothing.values, [](double x) { return std::abs(x) <= 1; }));
  }
}

// Checks the angle between the subspaces of the exact and the randomized projection.
inline void check_subspace_iteration(const Engine& engine) {
  std::vector<double> values;
  for (int i = 0; i < 40; ++i) values.push_back(std::pow(0.7, i));
  constexpr int64_t kRank = 6;
  const Projection exact = project(engine, {40, 90}, values, kRank, false);
  const Projection found = project(engine, {40, 90}, values, kRank, true);
  double outside = 0;  // the squared norm of what `found` has outside of `exact`
  for (int64_t r = 0; r < kRank; ++r) {
    std::vector<double> rest(found.vector(r).begin(), found.vector(r).end());
    for (int64_t e = 0; e < kRank; ++e) {
      const double dot = exact.dot(e, found.vector(r));
      for (size_t i = 0; i < rest.size(); ++i) rest[i] -= dot * exact.vector(e)[i];
    }
    for (double x : rest) outside += x * x;
  }
  const double sine = std::sqrt(outside);
  INFO("sine of the angle " << sine);
  CHECK(sine < 1e-6);
  CHECK(sine > 0);
}

}  // namespace dltrain
