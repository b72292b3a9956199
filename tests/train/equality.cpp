// What must not change the answer (docs/equality.md): fusion, accumulation, a second run.
#include "train/short_run.h"

using namespace dltrain;

TEST_CASE("a second run gives the same bits") {
  for (const char* layers : {kMlp, kConvnet})
    CHECK(short_run(layers, {}).state == short_run(layers, {}).state);
}

TEST_CASE("fusion changes no loss by more than rounding") {
  for (const char* layers : {kMlp, kConvnet}) {
    CHECK(greatest_difference(short_run(layers, {.fuse = false}), short_run(layers, {})) < 1e-6);
  }
}

TEST_CASE("micro-batches of one global batch give the same losses, dropout included") {
  const ShortRun whole = short_run(kMlp, {});
  for (int micro_batch : {1, 2, 4, 8}) {
    const std::string cut = fmt::format("training.micro_batch_size={}", micro_batch);
    INFO(cut);
    CHECK(greatest_difference(short_run(kMlp, {.overrides = {cut}}), whole) < 2e-6);
  }
}

TEST_CASE("the seed changes the losses") {
  CHECK(greatest_difference(short_run(kMlp, {.overrides = {"seed=1"}}), short_run(kMlp, {})) >
        1e-3);
}
