// Samples that a model contradicts (run/predict.h).
#include <cmath>

#include "catch.h"
#include "data/memory_dataset.h"
#include "run/predict.h"

using namespace dltrain;

TEST_CASE("of several targets only those that are not NaN count") {
  const float none = std::nanf("");
  const auto data_of = [](std::vector<float> targets) {
    std::vector<float> inputs(targets.size() / 2);
    return MemoryDataset(
        {{"input", {Shape{1}, DType::f32}}, {kTargetField, {Shape{2}, DType::f32}}},
        {std::move(inputs), std::move(targets)}, [](int64_t) { return std::string(); });
  };
  const Predictions binary{.kind = TargetKind::binary,
                           .samples = 3,
                           .width = 2,
                           .values = {0.125f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f}};
  const auto found = suspects(binary, data_of({1, none, none, none, 0, 1}), 10);
  REQUIRE(found.size() == 2);
  CHECK(found[0].sample == 0);
  CHECK(found[0].loss == Approx(std::log(8)));
  CHECK(found[1].sample == 2);
  CHECK(found[1].loss == Approx(std::log(4)));
  const Predictions classes{.kind = TargetKind::distributions,
                            .samples = 2,
                            .width = 2,
                            .classes = 2,
                            .values = {0.5f, 0.5f, 0.5f, 0.5f}};
  CHECK(suspects(classes, data_of({none, none, 0, 1}), 10).size() == 1);
}
