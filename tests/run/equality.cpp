// Options that must not change the result (docs/equality.md): fusion, accumulation, a second run.
#include "run/short_run.h"

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

TEST_CASE("recomputation changes no bit") {
  const char* const kRepeated =
      "[flatten, {linear: 24}, {repeat: {times: 3, layers: [{residual: [{linear: 24}, layer_norm, "
      "gelu, {dropout: 0.2}]}]}}, {linear: 5}]";
  for (const char* layers : {kMlp, kConvnet, kRepeated}) {
    for (const char* mode : {"selective", "blocks", "full"}) {
      if (mode == std::string("blocks") && layers != kRepeated) continue;
      for (const char* precision : {"f32", "bf16"}) {
        INFO(mode << " " << precision << " " << layers);
        const std::string compute = fmt::format("precision.compute={}", precision);
        const ShortRun kept = short_run(layers, {.overrides = {compute}});
        const ShortRun again =
            short_run(layers, {.overrides = {compute, fmt::format("memory.recompute={}", mode)}});
        CHECK(kept.state == again.state);
        CHECK(kept.losses == again.losses);
      }
    }
    for (double share : {0.0, 0.5}) {
      INFO("auto " << share << " " << layers);
      const ShortRun again = short_run(layers, {.overrides = {"memory.recompute=auto"},
                                                .recompute = {Recompute::automatic, share}});
      CHECK(short_run(layers, {}).state == again.state);
    }
  }
}
