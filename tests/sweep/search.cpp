#include "sweep/search.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "catch.h"
#include "sweep/parameter.h"
#include "sweep/sobol.h"

using namespace dltrain;

namespace {

SweepParameter range(double low, double high, bool log = false, bool integer = false) {
  SweepParameter out;
  out.key = "x";
  (log ? out.log : out.range) = {{low, high}};
  out.integer = integer;
  return out;
}

SweepParameter choices(std::vector<std::string> values) {
  SweepParameter out;
  out.key = "c";
  out.values = std::move(values);
  return out;
}

SweepConfig sweep_of(SearchKind search, std::vector<SweepParameter> parameters, int64_t trials) {
  SweepConfig out;
  out.search = search;
  out.parameters = std::move(parameters);
  out.trials = trials;
  return out;
}

double number(const std::string& text) {
  return std::stod(text);
}

}  // namespace

// scipy 1.17.1: qmc.Sobol(24, scramble=False).random(2048) times 2^30.
TEST_CASE("Sobol points are SciPy's") {
  constexpr uint32_t k1000[] = {235929600,  103809024, 556793856, 726663168, 300941312,  974127104,
                                49283072,   965738496, 537919488, 74448896,  91226112,   273678336,
                                173015040,  412090368, 154140672, 397410304, 772800512,  370147328,
                                1064304640, 779091968, 560988160, 590348288, 1020264448, 579862528};
  constexpr uint32_t k2047[] = {524288,    673710080,  999817216, 376963072, 676855808, 706215936,
                                126353408, 34078720,   981991424, 478674944, 535298048, 950534144,
                                627572736, 1060634624, 524812288, 728236032, 581435392, 884473856,
                                117964800, 39321600,   384303104, 115867648, 101187584, 749207552};
  for (int d = 0; d < kSobolDimensions; ++d) {
    CHECK(sobol(0, d) == 0);
    CHECK(sobol(1, d) == 1u << 29);
    CHECK(sobol(1000, d) == k1000[d]);
    CHECK(sobol(2047, d) == k2047[d]);
  }
}

TEST_CASE("values cover their range and nothing else, and have a place in it") {
  CHECK(value_at(range(1e-5, 1e-1, true), 0) == "1e-05");
  CHECK(value_at(range(1e-5, 1e-1, true), 0.5) == "0.001");
  CHECK(value_at(range(1e-5, 1e-1, true), 1) == "0.1");
  CHECK(value_at(range(-2, 3), 0.5) == "0.5");
  // Rounding to four digits does not leave the range.
  CHECK(value_at(range(0.123446, 0.5), 0) == "0.123446");
  CHECK(value_at(range(0.1, 0.123356), 1) == "0.123356");
  CHECK(value_at(choices({"a", "b"}), 0.49) == "a");
  CHECK(value_at(choices({"a", "b"}), 1) == "b");
  for (const bool log : {false, true}) {
    const SweepParameter whole = range(1, 4, log, true);
    std::set<std::string> seen;
    for (int i = 0; i <= 100; ++i) seen.insert(value_at(whole, 0.01 * i));
    CHECK(seen == std::set<std::string>{"1", "2", "3", "4"});
  }
  CHECK(unit_of(range(1e-5, 1e-1, true), "0.001") == Approx(0.5));
  CHECK(unit_of(choices({"a", "b"}), "b") == 0.75);
  CHECK(std::isnan(unit_of(choices({"a", "b"}), "c")));
  CHECK(std::isnan(unit_of(range(0, 1), "3")));
  CHECK(is_ordered(choices({"1", "2.5", "1e3"})));
  CHECK_FALSE(is_ordered(choices({"2", "1"})));
  CHECK_FALSE(is_ordered(choices({"adam", "sgd"})));
}

TEST_CASE("a grid has every combination once") {
  SweepParameter points = range(1, 100, true);
  points.points = 3;
  SweepConfig sweep = sweep_of(SearchKind::grid, {choices({"a", "b"}), points}, 0);
  sweep.trials.reset();
  REQUIRE(trial_count(sweep) == 6);
  CHECK(values_of_trial(sweep, 0) == std::vector<std::string>{"a", "1"});
  CHECK(values_of_trial(sweep, 1) == std::vector<std::string>{"a", "10"});
  CHECK(values_of_trial(sweep, 5) == std::vector<std::string>{"b", "100"});
  SweepParameter whole = range(4, 6, false, true);
  whole.points = 5;
  CHECK(grid_values(whole) == std::vector<std::string>{"4", "5", "6"});
}

TEST_CASE("draws are functions of seed and trial, and quasi-random ones cover the range evenly") {
  for (const SearchKind search : {SearchKind::random, SearchKind::quasi_random}) {
    SweepConfig sweep = sweep_of(search, {range(0, 1), range(0, 1)}, 64);
    std::set<std::string> first, second;
    for (int64_t i = 0; i < 64; ++i) {
      const auto values = values_of_trial(sweep, i);
      CHECK(values == values_of_trial(sweep, i));
      first.insert(fmt::format("{:.0f}", std::floor(64 * number(values[0]))));
      sweep.seed = 1;
      second.insert(values_of_trial(sweep, i)[0]);
      CHECK(values != values_of_trial(sweep, i));
      sweep.seed = 0;
    }
    // 64 Sobol points lie in 64 different parts of the range (but for rounding); random ones in
    // about 41.
    CHECK((search == SearchKind::random ? first.size() < 52 : first.size() >= 60));
    CHECK(second.size() > 60);
  }
}

TEST_CASE("tpe comes closer to an optimum than random draws, also among choices") {
  double sums[2] = {0, 0};
  for (const bool tpe : {false, true}) {
    for (int64_t seed = 0; seed < 10; ++seed) {
      SweepConfig sweep =
          sweep_of(tpe ? SearchKind::tpe : SearchKind::random,
                   {range(1e-5, 1, true), range(-1, 1), choices({"a", "b", "c"})}, 50);
      sweep.seed = seed;
      std::vector<Observation> seen;
      double best = INFINITY;
      for (int64_t i = 0; i < 50; ++i) {
        const auto values = values_of_trial(
            sweep, i, std::span(seen).first(static_cast<size_t>(needed_trials(sweep, i))));
        const double a = std::log10(number(values[0])) + 3, b = number(values[1]) - 0.3;
        const double score = a * a + b * b + (values[2] == "b" ? 0 : 1);
        seen.push_back({values, i % 7 == 3 ? INFINITY : score});  // some trials fail
        best = std::min(best, seen.back().score);
      }
      sums[tpe] += best;
    }
  }
  CHECK(sums[1] < 0.5 * sums[0]);
}

TEST_CASE("a tpe trial needs the results of all before those that run beside it") {
  SweepConfig sweep = sweep_of(SearchKind::tpe, {range(0, 1)}, 50);
  sweep.parallel = 4;
  CHECK(needed_trials(sweep, 9) == 0);
  CHECK(needed_trials(sweep, 20) == 17);
  sweep.search = SearchKind::random;
  CHECK(needed_trials(sweep, 20) == 0);
}
