#include "data/sampler.h"

#include <numeric>
#include <vector>

#include "catch.h"
#include "data/memory_dataset.h"
#include "refusal.h"

using namespace dltrain;
using Catch::Matchers::Contains;

TEST_CASE("a permutation holds every element once") {
  std::vector<uint64_t> sizes(130);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (uint64_t n : {255, 256, 257, 1437, 1797, 4095, 4096, 4097, 60000, 65536, 99991}) {
    sizes.push_back(n);
  }
  for (uint64_t n : sizes) {
    for (uint64_t epoch : {0, 1, 77}) {
      const Permutation order(n, 42, epoch);
      std::vector<char> seen(n, 0);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t element = order(i);
        if (element >= n || seen[element]++) FAIL(n << " elements, place " << i);
      }
    }
  }
}

TEST_CASE("a permutation of more elements than fit 32 bits stays inside and is injective") {
  const uint64_t n = (uint64_t{1} << 61) + 12345;
  const Permutation order(n, 1, 2);
  std::vector<uint64_t> seen;
  for (uint64_t i = 0; i < 1000; ++i) seen.push_back(order(n - 1 - i * 1000003));
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
  CHECK(seen.back() < n);
  CHECK(seen.back() > n / 4 * 3);
}

TEST_CASE("every element stands at every place equally often") {
  // Chi-square of place against element over many epochs: degrees of freedom f, so mean f and
  // standard deviation sqrt(2 f). Six of those would be a fault, not chance.
  for (uint64_t n : {2, 3, 4, 5, 7, 10, 16, 33}) {
    const int epochs = 20000;
    std::vector<double> count(n * n, 0);
    for (int epoch = 0; epoch < epochs; ++epoch) {
      const Permutation order(n, 9, static_cast<uint64_t>(epoch));
      for (uint64_t i = 0; i < n; ++i) ++count[i * n + order(i)];
    }
    const double expected = static_cast<double>(epochs) / static_cast<double>(n);
    double chi = 0;
    for (double c : count) chi += (c - expected) * (c - expected) / expected;
    const double freedom = static_cast<double>((n - 1) * (n - 1));
    INFO("n " << n << " chi-square " << chi << " for " << freedom);
    CHECK(chi < freedom + 6 * std::sqrt(2 * freedom));
  }
}

TEST_CASE("all orders of four elements come equally often") {
  const int epochs = 48000;
  std::vector<double> count(256, 0);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const Permutation order(4, 3, static_cast<uint64_t>(epoch));
    ++count[order(0) | order(1) << 2 | order(2) << 4 | order(3) << 6];
  }
  double chi = 0;
  int orders = 0;
  for (double c : count) {
    orders += c > 0;
    if (c > 0) chi += (c - 2000) * (c - 2000) / 2000;
  }
  CHECK(orders == 24);
  CHECK(chi < 23 + 6 * std::sqrt(46.0));
}

TEST_CASE("neighbours of the file are not neighbours in the order") {
  // The expected number of places whose successor in the order is the successor in the file is 1.
  const uint64_t n = 1000;
  const int epochs = 2000;
  int64_t neighbours = 0, fixed = 0, ascents = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const Permutation order(n, 11, static_cast<uint64_t>(epoch));
    for (uint64_t i = 0; i < n; ++i) {
      fixed += order(i) == i;
      if (i + 1 == n) continue;
      neighbours += order(i + 1) == order(i) + 1;
      ascents += order(i + 1) > order(i);
    }
  }
  // Poisson with mean 2000: standard deviation 45.
  CHECK(std::abs(neighbours - epochs) < 270);
  CHECK(std::abs(fixed - epochs) < 270);
  // Ascents of one order: mean (n-1)/2, variance (n+1)/12.
  const double deviation = std::sqrt(epochs * (n + 1) / 12.0);
  CHECK(std::abs(static_cast<double>(ascents) - epochs * (n - 1) / 2.0) < 6 * deviation);
}

TEST_CASE("the stream holds every sample once an epoch and is the same from any start") {
  Sampler sampler(10, 1, SampleOrder::shuffled);
  std::vector<int64_t> stream;
  for (int64_t p = 0; p < 50; ++p) stream.push_back(sampler.index(p));
  for (int epoch = 0; epoch < 5; ++epoch) {
    std::vector<int64_t> once(stream.begin() + epoch * 10, stream.begin() + (epoch + 1) * 10);
    std::sort(once.begin(), once.end());
    for (int64_t i = 0; i < 10; ++i) CHECK(once[static_cast<size_t>(i)] == i);
  }
  CHECK(std::vector<int64_t>(stream.begin(), stream.begin() + 10) !=
        std::vector<int64_t>(stream.begin() + 10, stream.begin() + 20));
  for (int64_t p = 49; p >= 0; --p) {
    Sampler fresh(10, 1, SampleOrder::shuffled);
    CHECK(fresh.index(p) == stream[static_cast<size_t>(p)]);
  }
  Sampler ordered(10, 1, SampleOrder::file);
  CHECK(ordered.index(23) == 3);
}

TEST_CASE("balanced sampling shows every class equally often and every sample of it in turn") {
  const auto lists =
      std::make_shared<const ClassLists>(ClassLists{{0, 1, 2, 3, 4, 5, 6}, {7, 8}, {9}});
  Sampler sampler(10, 3, SampleOrder::balanced, lists), other(10, 3, SampleOrder::balanced, lists);
  std::vector<int> visits(10, 0);
  std::vector<int64_t> firsts;
  for (int64_t turn = 0; turn < 140; ++turn) {
    int of_class[3] = {0, 0, 0};
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t sample = sampler.index(turn * 3 + i);
      ++visits[static_cast<size_t>(sample)];
      ++of_class[sample < 7 ? 0 : sample < 9 ? 1 : 2];
      if (i == 0) firsts.push_back(sample);
    }
    REQUIRE((of_class[0] == 1 && of_class[1] == 1 && of_class[2] == 1));
  }
  CHECK(visits == std::vector<int>{20, 20, 20, 20, 20, 20, 20, 70, 70, 140});
  CHECK(std::count(firsts.begin(), firsts.end(), 9) > 20);
  CHECK(std::count(firsts.begin(), firsts.end(), 9) < 80);
  CHECK(other.index(200) == sampler.index(200));
  CHECK(Sampler(10, 4, SampleOrder::balanced, lists).index(200) +
            10 * Sampler(10, 4, SampleOrder::balanced, lists).index(201) !=
        sampler.index(200) + 10 * sampler.index(201));
}

TEST_CASE("balanced sampling takes targets that are 0 or 1 as classes") {
  const auto data_with = [](const std::vector<float>& targets) {
    const TensorSpec one{Shape{1}, DType::f32};
    return MemoryDataset({{kInputField, one}, {kTargetField, one}}, {targets, targets},
                         [](int64_t sample) { return fmt::format("sample {}", sample); });
  };
  CHECK(samples_by_class(data_with({0, 0, 1, 0, NAN})) == ClassLists{{0, 1, 3}, {2}});
  CHECK_THAT(refusal_of([&] {
               samples_by_class(data_with({0, 0.5}));
             }),
             Contains("sample 1: balanced sampling needs classes; the target 0.5 is not 0 or 1"));
}
