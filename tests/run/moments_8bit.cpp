// Moments in 8 bits (optimizer.moments: 8bit): what they work together with, in every layout.
#include "refusal.h"
#include "run/layout_run.h"
#include "run/short_run.h"

using namespace dltrain;

namespace {

std::vector<std::string> in_8_bits(std::vector<std::string> more = {},
                                   const std::string& optimizer = "type: adamw") {
  more.push_back(fmt::format(
      "optimizer={{{}, learning_rate: 0.01, moments: 8bit, min_8bit_size: 100}}", optimizer));
  return more;
}

// Units of some hundred elements, so that there are several of them, and blocks on every border.
std::vector<std::string> stage_8bit(int stage, std::vector<std::string> more = {},
                                    const std::string& optimizer = "type: adamw") {
  more.push_back(fmt::format("parallelism.zero_stage={}", stage));
  more.push_back("parallelism.bucket_mb=0.002");
  return in_8_bits(std::move(more), optimizer);
}

const std::vector<std::string> kPlain{"training={global_batch_size: 24, max_steps: 5}"};

}  // namespace

TEST_CASE("moments in 8 bits train like f32 but for rounding, and give the same bits twice") {
  for (const char* layers : {kMlp, kConvnet}) {
    for (const char* compute : {"f32", "bf16", "fp16"}) {
      const std::string precision = fmt::format("precision.compute={}", compute);
      const ShortRun wide = short_run(layers, {.overrides = {precision}});
      const ShortRun narrow = short_run(layers, {.overrides = in_8_bits({precision})});
      INFO(layers << " in " << compute << ": within " << greatest_difference(narrow, wide));
      CHECK(greatest_difference(narrow, wide) < 0.05);
      CHECK(greatest_difference(narrow, wide) > 1e-6);
      CHECK(narrow.state.size() < wide.state.size());
      CHECK(short_run(layers, {.overrides = in_8_bits({precision})}).state == narrow.state);
      const auto recomputed = in_8_bits({precision, "memory.recompute=full"});
      CHECK(short_run(layers, {.overrides = recomputed}).state == narrow.state);
    }
  }
}

TEST_CASE("moments in 8 bits have the same bits whatever the number of ranks") {
  for (const Network& network : networks()) {
    for (const char* precision :
         {"precision.compute=f32", "precision={compute: bf16, parameters: bf16}"}) {
      INFO(network.name << ", " << precision);
      const auto fixed =
          in_8_bits({precision, "training.reduction=fixed", "training.micro_batch_size=3"});
      const LayoutRun alone = layout_run(network, 1, fixed);
      for (int ranks : {2, 4}) {
        const LayoutRun shared = layout_run(network, ranks, fixed);
        CHECK(shared.losses == alone.losses);
        CHECK(shared.state == alone.state);
      }
    }
  }
}

TEST_CASE("ZeRO changes no bit of moments in 8 bits") {
  for (const Network& network : networks()) {
    const LayoutRun whole = layout_run(network, 4, stage_8bit(0, kPlain));
    for (int s : {1, 2, 3}) {
      for (const char* group : {"all", "2"}) {
        INFO(network.name << ", stage " << s << ", groups " << group);
        std::vector<std::string> overrides = kPlain;
        overrides.push_back(fmt::format("parallelism.zero_shard_size={}", group));
        const LayoutRun parts = layout_run(network, 4, stage_8bit(s, overrides));
        CHECK(parts.losses == whole.losses);
        CHECK(parts.state == whole.state);
      }
    }
  }
  // Uneven ranks, and the other optimizers.
  for (const char* optimizer : {"type: adam", "type: lion", "type: sgd, momentum: 0.9"}) {
    const LayoutRun whole = layout_run(networks()[2], 3, stage_8bit(0, kPlain, optimizer));
    for (int s : {1, 3}) {
      INFO(optimizer << ", stage " << s);
      const LayoutRun parts = layout_run(networks()[2], 3, stage_8bit(s, kPlain, optimizer));
      CHECK(parts.losses == whole.losses);
      CHECK(parts.state == whole.state);
    }
  }
}

TEST_CASE("moments in 8 bits with accumulation, clipping, averages and groups under ZeRO") {
  const std::vector<std::vector<std::string>> variations{
      {"training={global_batch_size: 24, micro_batch_size: 3, max_steps: 5, max_grad_norm: 0.5, "
       "ema: {decay: 0.5}}"},
      {"precision.compute=bf16"},
      {"training.freeze=[\"h.0.*\", \"wpe.weight\"]"}};
  for (const std::vector<std::string>& overrides : variations) {
    const LayoutRun whole = layout_run(networks()[2], 2, stage_8bit(0, overrides));
    for (int s : {1, 2, 3}) {
      INFO(overrides[0] << ", stage " << s);
      const LayoutRun parts = layout_run(networks()[2], 2, stage_8bit(s, overrides));
      CHECK(greatest_difference(parts.losses, whole.losses) <
            (overrides[0].starts_with("precision") ? 2e-3 : 1e-4));
      CHECK(parts.state.size() == whole.state.size());
    }
  }
}

TEST_CASE("stages of a pipeline have the moments in 8 bits of one rank") {
  const auto micro = in_8_bits({"training.micro_batch_size=4"});
  const LayoutRun one = layout_run(networks()[0], 1, micro);
  const LayoutRun two = layout_run(
      networks()[0], 2, in_8_bits({"training.micro_batch_size=4", "parallelism.pipeline=2"}));
  CHECK(two.losses == one.losses);
  CHECK(two.state == one.state);
}

TEST_CASE("moments in 8 bits take the bytes that the formula says") {
  const Network products{"products",
                         {"model.layers=[{linear: 64}, {linear: {out_features: 64, bias: false}}]",
                          "data.train={type: synthetic, shape: [64], classes: 64, samples: 96}"}};
  const auto moments = [](const LayoutRun& run) {
    for (const auto& [role, bytes] : run.report.state_bytes) {
      if (role == "optimizer moments") return bytes;
    }
    return size_t{0};
  };
  // A byte an element and 4 for 256 of them, twice; the bias is too small.
  const std::vector<std::string> small{
      "optimizer={type: adamw, learning_rate: 0.01, moments: 8bit}"};
  const size_t matrices = 2 * 2 * (64 * 64 + 4 * 64 * 64 / 256), bias = 2 * 4 * 64;
  const LayoutRun whole = layout_run(products, 1, small);
  CHECK(moments(whole) == matrices + bias);
  CHECK(whole.state.at("second_moment_8bit of layers.0.weight").size() == 4096);
  CHECK(whole.state.at("second_moment_scale of layers.0.weight").size() == 64);
  CHECK(whole.state.at("second_moment of layers.0.bias").size() == 256);
  for (int stage : {1, 3}) {
    const LayoutRun parts =
        layout_run(products, 2, {small[0], fmt::format("parallelism.zero_stage={}", stage)});
    CHECK(moments(parts) == (matrices + bias) / 2);
  }
  const LayoutRun except =
      layout_run(products, 1,
                 {"optimizer={type: adamw, learning_rate: 0.01, moments: 8bit, groups: [{match: "
                  "layers.1.*, moments: f32}]}"});
  CHECK(moments(except) == matrices / 2 + bias + 2 * 4 * 64 * 64);
}

TEST_CASE("what moments in 8 bits do not go with is refused at the key") {
  const auto message = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"model.layers=[{linear: 5}]",
                                         "data.train={type: synthetic, shape: [6], classes: 5, "
                                         "samples: 64}",
                                         "training={global_batch_size: 16, max_steps: 1}"});
    return refusal_of([&] { load_config<Experiment>({.files = {}, .overrides = overrides}); },
                      ExitCode::usage);
  };
  using Catch::Matchers::Contains;
  for (const char* type : {"adagrad", "rmsprop", "lars", "lamb", "adafactor", "sgd"}) {
    CHECK_THAT(message(in_8_bits({}, fmt::format("type: {}", type))),
               Contains(fmt::format("not for {}", type)) && Contains("moments: f32"));
  }
  CHECK_THAT(message({"optimizer={type: lamb, learning_rate: 1, groups: [{match: \"*\", moments: "
                      "8bit}]}"}),
             Contains("not for lamb"));
  for (const char* axis : {"tensor", "expert"}) {
    CHECK_THAT(message(in_8_bits({fmt::format("parallelism.{}=2", axis)})),
               Contains(fmt::format("parallelism.{} 2", axis)) && Contains("moments: f32"));
  }
}
