#include "data/source_mix.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "catch.h"
#include "data/sampler.h"

using namespace dltrain;

namespace {

// Draws one by one as the header says, with floating-point keys, which must not be equal.
std::vector<size_t> draw_by_keys(const std::vector<DataSource>& sources, size_t count) {
  std::vector<double> drawn(sources.size(), 0);
  std::vector<size_t> out;
  for (size_t i = 0; i < count; ++i) {
    size_t best = sources.size();
    double least = 0;
    for (size_t k = 0; k < sources.size(); ++k) {
      const DataSource& source = sources[k];
      const auto samples = static_cast<double>(source.samples);
      if (source.max_epochs > 0 && drawn[k] >= std::round(source.max_epochs * samples)) continue;
      const double key = (2 * drawn[k] + 1) / (2 * (source.weight > 0 ? source.weight : samples));
      if (best == sources.size() || key < least * (1 - 1e-12)) {
        best = k;
        least = key;
      }
    }
    drawn[best] += 1;
    out.push_back(best);
  }
  return out;
}

}  // namespace

TEST_CASE("sources are drawn by ascending keys, from any position") {
  const std::vector<std::vector<DataSource>> cases{
      {{"a", 10}},
      {{"a", 100, 1}, {"b", 100, 1}},
      {{"a", 1000, 0.7}, {"b", 10, 0.21}, {"c", 5, 0.0913}},
      {{"a", 37}, {"b", 5}, {"c", 411}},
      {{"a", 40, 3.1, 2}, {"b", 30, 1.07}, {"c", 9, 5.3, 1.5}},
      {{"a", 7, 1.1, 1}, {"b", 7, 1000, 1}, {"c", 7, 0.001, 3}},
      {{"a", 3, 1.0123}, {"b", 4, 2.1731}, {"c", 5, 3.2917}, {"d", 6, 4.4339}, {"e", 7, 5.5711}},
  };
  for (size_t which = 0; which < cases.size(); ++which) {
    const SourceMix mix(cases[which]);
    const auto count = static_cast<size_t>(std::min<int64_t>(2000, mix.limit()));
    const std::vector<size_t> expected = draw_by_keys(cases[which], count);
    SourceMix::Counts drawn{};
    for (size_t i = 0; i < count; ++i) {
      const auto position = static_cast<int64_t>(i);
      INFO("case " << which << ", position " << i);
      REQUIRE(mix.counts(position) == drawn);
      const auto [source, number] = mix.at(position);
      REQUIRE(source == expected[i]);
      REQUIRE(number == drawn[source]);
      ++drawn[source];
    }
  }
}

TEST_CASE("each source has its share after any number of samples") {
  const SourceMix mix({{"a", 1000, 70}, {"b", 1000, 29}, {"c", 1000, 1}});
  for (const int64_t position : {int64_t{1}, int64_t{50}, int64_t{12345}, int64_t{1} << 50}) {
    const auto counts = mix.counts(position);
    CHECK(counts[0] + counts[1] + counts[2] == position);
    for (size_t k = 0; k < 3; ++k) {
      const double share = static_cast<double>(position) * mix.sources()[k].weight / 100;
      // The second term is the rounding of weights to 2^-40.
      const double tolerance = 2 + static_cast<double>(position) * 0x1p-40;
      CHECK(std::abs(static_cast<double>(counts[k]) - share) <= tolerance);
    }
  }
}

TEST_CASE("without weights an epoch has every sample once") {
  const SourceMix mix({{"a", 1000}, {"b", 7}, {"c", 93}});
  CHECK(mix.samples() == 1100);
  CHECK(mix.epochs(1100) == std::vector<double>{1, 1, 1});
  Sampler sampler(1100, 5, SampleOrder::shuffled, nullptr, nullptr, &mix);
  std::vector<int> seen(1100, 0);
  for (int64_t i = 0; i < 2200; ++i) ++seen[static_cast<size_t>(sampler.index(i))];
  CHECK(std::count(seen.begin(), seen.end(), 2) == 1100);
  CHECK(mix.source_of(999) == 0);
  CHECK(mix.source_of(1000) == 1);
  CHECK(mix.source_of(1007) == 2);
}

TEST_CASE("a source that is used up leaves its part to the others") {
  const SourceMix mix({{"a", 100, 1, 2}, {"b", 50, 1}, {"c", 60, 2}});
  CHECK(mix.limit() == INT64_MAX);
  const auto counts = mix.counts(3800);
  CHECK(counts[0] == 200);
  CHECK(std::abs(counts[1] - 1200) <= 1);
  CHECK(std::abs(counts[2] - 2400) <= 1);
  const SourceMix limited({{"a", 100, 1, 2}, {"b", 50, 1, 0.5}});
  CHECK(limited.limit() == 225);
  CHECK(limited.epochs(225) == std::vector<double>{2, 0.5});
  CHECK(limited.epochs(1000) == limited.epochs(225));
  CHECK(limited.at(225).source < 2);  // a loader reads ahead
}
