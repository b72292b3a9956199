#include "data/mixing.h"

#include <cmath>
#include <vector>

#include "catch.h"
#include "data/loader.h"
#include "data/memory_dataset.h"

using namespace dltrain;
using Catch::Matchers::Contains;

TEST_CASE("shares follow the Beta distribution") {
  for (double alpha : {0.2, 1.0, 4.0}) {
    const MixingOptions options{.mixup = {.alpha = alpha}, .cutmix = {}};
    double sum = 0, squares = 0;
    const int n = 20000;
    for (int64_t i = 0; i < n; ++i) {
      const Mix mix = draw_mix(options, 3, i, 0, 0);
      REQUIRE(mix.kind == Mix::Kind::mixup);
      REQUIRE((mix.share >= 0 && mix.share <= 1));
      sum += mix.share;
      squares += mix.share * mix.share;
    }
    const double mean = sum / n, variance = squares / n - mean * mean;
    CHECK(mean == Approx(0.5).margin(0.015));
    CHECK(variance == Approx(1 / (4 * (2 * alpha + 1))).margin(0.01));
  }
}

TEST_CASE("a cut box covers what its share says, and its probability holds") {
  const MixingOptions options{.mixup = {}, .cutmix = {.alpha = 1, .probability = 0.25}};
  int cut = 0;
  for (int64_t i = 0; i < 2000; ++i) {
    const Mix mix = draw_mix(options, 3, i, 8, 6);
    if (mix.kind == Mix::Kind::none) continue;
    ++cut;
    std::vector<float> values(8 * 6 * 2, 0.0f);
    const std::vector<float> partner(values.size(), 1.0f);
    mix_values(mix, {8, 6, 2}, partner.data(), values.data());
    double ones = 0;
    for (float v : values) ones += v;
    REQUIRE(1 - ones / static_cast<double>(values.size()) == Approx(mix.share).margin(1e-6));
    float target[3];
    mix_targets(mix, 2, 0, 3, target);
    REQUIRE(target[2] == mix.share);
    REQUIRE(target[0] == 1 - mix.share);
    mix_targets(mix, 1, 1, 3, target);
    REQUIRE(target[1] == Approx(1));
  }
  CHECK(std::abs(cut - 500) < 80);
}

TEST_CASE("data that cannot be mixed is refused") {
  const auto dataset = [](Shape input, Shape target, std::vector<int32_t> labels) {
    std::vector<FieldValues> values;
    values.emplace_back(std::vector<float>(static_cast<size_t>(2 * input.elements()), 0.5f));
    values.emplace_back(std::move(labels));
    return MemoryDataset({{"input", {input, DType::f32}}, {"target", {target, DType::i32}}},
                         std::move(values), [](int64_t) { return ""; });
  };
  LoaderOptions options{.mixing = {.mixup = {.alpha = 1}, .cutmix = {}}, .classes = 5};
  CHECK(to_string(batch_fields(dataset({4}, {}, {0, 1}), options)[1].sample) == "f32[5]");
  CHECK_THROWS_WITH(batch_fields(dataset({4}, {2}, {0, 1, 2, 3}), options),
                    Contains("one label a sample"));
  CHECK_THROWS_WITH(batch_fields(dataset({4}, {}, {0, -100}), options), Contains("ignored"));
  options.mixing.cutmix.alpha = 1;
  CHECK_THROWS_WITH(batch_fields(dataset({4}, {}, {0, 1}), options),
                    Contains("cutmix needs images"));
}
