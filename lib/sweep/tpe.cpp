// The tree-structured Parzen estimator (Bergstra et al. 2011, "Algorithms for Hyper-Parameter
// Optimization") over all parameters together: l is a density of the best tenth of the trials, g of
// the others; of 64 draws from l the one with the greatest l/g is taken. The prior and the weights
// of old trials are those of Optuna 5 (Watanabe 2023, "Tree-Structured Parzen Estimator:
// Understanding Its Algorithm Components and Their Roles for Better Empirical Performance"); the
// width of a kernel is the lesser of those of its two estimators, for one parameter and for
// several.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"
#include "sweep/parameter.h"
#include "sweep/search.h"

namespace dltrain {
namespace {

constexpr size_t kCandidates = 64, kMostGood = 25, kEqualWeights = 25;

double normal_cdf(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

// Uniform draws in (0, 1) of one trial.
class Draws {
 public:
  Draws(int64_t seed, int64_t trial)
      : seed_(static_cast<uint64_t>(seed)), trial_(static_cast<uint64_t>(trial)) {}
  double next() {
    constexpr uint64_t kStream = random_stream("sweep.tpe");
    return (random_bits(seed_, kStream, trial_, count_++) + 0.5) / 0x1p32;
  }

 private:
  uint64_t seed_, trial_, count_ = 0;
};

using Point = std::vector<double>;  // a number in [0, 1) for each parameter

// Old trials count less once there are more than kEqualWeights.
std::vector<double> weights_of(size_t count) {
  std::vector<double> out(count, 1.0);
  if (count <= kEqualWeights) return out;
  const size_t ramp = count - kEqualWeights;
  for (size_t i = 0; i < ramp; ++i) {
    const double first = 1.0 / static_cast<double>(count);
    out[i] = ramp == 1
                 ? first
                 : first + (1 - first) * static_cast<double>(i) / static_cast<double>(ramp - 1);
  }
  return out;
}

// The widths of the kernels of one range: the distance to the farther neighbour, at most twice that
// of Scott's rule as Optuna scales it.
std::vector<double> widths_of(const std::vector<double>& means, size_t parameters) {
  const size_t count = means.size();
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return means[i]; });
  const double least = 1 / std::min(100.0, 2.0 + static_cast<double>(count));
  const double scott = std::pow(static_cast<double>(std::max<size_t>(1, count)),
                                -1 / (4 + static_cast<double>(parameters)));
  const double most = std::max(least, 0.4 * scott);
  std::vector<double> out(count);
  for (size_t at = 0; at < count; ++at) {
    const double here = means[order[at]];
    // The ends of the range count as neighbours of a single value only.
    const double none = count == 1 ? 0 : here, end = count == 1 ? 1 : here;
    const double left = here - (at > 0 ? means[order[at - 1]] : none);
    const double right = (at + 1 < count ? means[order[at + 1]] : end) - here;
    out[order[at]] = std::clamp(std::max(left, right), least, most);
  }
  return out;
}

// A mixture of one kernel for each point, and a wide one as the prior. A kernel is a product over
// the parameters: normal densities truncated to [0, 1] for ranges, and for choices the shares of
// their values, of which that of its own is the largest.
class Density {
 public:
  Density(const SweepConfig& sweep, const std::vector<Point>& points)
      : sweep_(sweep), weight_(weights_of(points.size())), mean_(sweep.parameters.size()) {
    for (size_t p = 0; p < mean_.size(); ++p) {
      for (const Point& point : points) mean_[p].push_back(point[p]);
      width_.push_back(widths_of(mean_[p], mean_.size()));
      mean_[p].push_back(0.5);
      width_[p].push_back(1);
    }
    weight_.push_back(1);
    total_ = std::accumulate(weight_.begin(), weight_.end(), 0.0);
  }

  Point draw(Draws& draws) const {
    double chosen = draws.next() * total_;
    size_t k = 0;
    while (k + 1 < weight_.size() && chosen >= weight_[k]) chosen -= weight_[k++];
    Point out(mean_.size());
    for (size_t p = 0; p < out.size(); ++p) {
      out[p] = is_range(p) ? draw_normal(p, k, draws) : draw_choice(p, k, draws);
    }
    return out;
  }

  double log_density(const Point& point) const {
    std::vector<double> logs;
    for (size_t k = 0; k < weight_.size(); ++k) {
      double sum = std::log(weight_[k] / total_);
      for (size_t p = 0; p < point.size(); ++p) {
        sum += is_range(p) ? log_normal(p, k, point[p]) : std::log(share(p, k, point[p]));
      }
      logs.push_back(sum);
    }
    const double most = *std::ranges::max_element(logs);
    double sum = 0;
    for (const double log : logs) sum += std::exp(log - most);
    return most + std::log(sum);
  }

 private:
  bool is_range(size_t p) const { return sweep_.parameters[p].is_range(); }
  size_t choices(size_t p) const { return sweep_.parameters[p].values.size(); }
  size_t choice(size_t p, double unit) const {
    return std::min(choices(p) - 1, static_cast<size_t>(unit * static_cast<double>(choices(p))));
  }
  // The share of a value in kernel k; of the prior all are equal.
  double share(size_t p, size_t k, double unit) const {
    const auto count = static_cast<double>(choices(p));
    const auto kernels = static_cast<double>(weight_.size());
    if (k + 1 == weight_.size()) return 1 / count;
    const bool own = choice(p, unit) == choice(p, mean_[p][k]);
    return (1 / kernels + (own ? 1 : 0)) / (1 + count / kernels);
  }
  double draw_choice(size_t p, size_t k, Draws& draws) const {
    double chosen = draws.next(), unit = 0;
    for (size_t i = 0; i < choices(p); ++i) {
      unit = (static_cast<double>(i) + 0.5) / static_cast<double>(choices(p));
      if ((chosen -= share(p, k, unit)) < 0) break;
    }
    return unit;
  }
  // Box and Muller's normal numbers, until one lies inside.
  double draw_normal(size_t p, size_t k, Draws& draws) const {
    for (int tries = 0; tries < 100; ++tries) {
      const double radius = std::sqrt(-2 * std::log(draws.next()));
      const double x = mean_[p][k] + width_[p][k] * radius * std::cos(2 * M_PI * draws.next());
      if (x >= 0 && x < 1) return x;
    }
    return mean_[p][k];
  }
  double log_normal(size_t p, size_t k, double x) const {
    const double mean = mean_[p][k], width = width_[p][k], z = (x - mean) / width;
    const double inside = normal_cdf((1 - mean) / width) - normal_cdf(-mean / width);
    return -0.5 * z * z - std::log(width * inside);
  }

  const SweepConfig& sweep_;
  std::vector<double> weight_;                     // of kernels
  std::vector<std::vector<double>> mean_, width_;  // [parameter][kernel]
  double total_ = 1;
};

}  // namespace

std::vector<double> tpe_point(const SweepConfig& sweep, int64_t index,
                              std::span<const Observation> earlier) {
  std::vector<size_t> order(earlier.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return earlier[i].score; });
  const auto good = static_cast<std::ptrdiff_t>(std::min(kMostGood, (earlier.size() + 9) / 10));
  // Weights depend on the age.
  std::ranges::sort(order.begin(), order.begin() + good);
  std::ranges::sort(order.begin() + good, order.end());
  std::vector<Point> best, others;
  for (size_t i = 0; i < order.size(); ++i) {
    Point point;
    for (size_t p = 0; p < sweep.parameters.size(); ++p) {
      point.push_back(unit_of(sweep.parameters[p], earlier[order[i]].values[p]));
    }
    (static_cast<std::ptrdiff_t>(i) < good ? best : others).push_back(std::move(point));
  }
  const Density l(sweep, best), g(sweep, others);
  Draws draws(sweep.seed, index);
  Point out;
  double most = -INFINITY;
  for (size_t i = 0; i < kCandidates; ++i) {
    Point point = l.draw(draws);
    const double ratio = l.log_density(point) - g.log_density(point);
    if (ratio > most) most = ratio, out = std::move(point);
  }
  return out;
}

}  // namespace dltrain
