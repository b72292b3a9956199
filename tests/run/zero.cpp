// ZeRO (passes/zero.h): the losses of every stage, and what it works together with.
#include "passes/zero.h"

#include "max_or_inf.h"
#include "refusal.h"
#include "run/low_precision.h"

using namespace dltrain;

namespace {

// Units of some hundred elements, so that there are several of them and tensors lie across the
// borders of ranks.
std::vector<std::string> stage_zero(int stage, std::vector<std::string> more = {}) {
  more.push_back(fmt::format("parallelism.zero_stage={}", stage));
  more.push_back("parallelism.bucket_mb=0.002");
  return more;
}

const Network& mlp() {
  return networks()[0];
}
const Network& gpt() {
  return networks()[2];
}

}  // namespace

TEST_CASE("every ZeRO stage gives the losses of whole state") {
  for (const Network& network : networks()) {
    for (int ranks : {2, 3, 4}) {
      // Micro-batches of 3 samples: 4, 0 (they do not divide) and 2 of a rank, or of 2: 4.
      const std::vector<std::string> cut{
          fmt::format("training.micro_batch_size={}", ranks == 3 ? 2 : 3)};
      const LayoutRun whole = layout_run(network, ranks, stage_zero(0, cut));
      for (int s : {1, 2, 3}) {
        INFO(network.name << ", stage " << s << ", " << ranks << " ranks");
        const LayoutRun parts = layout_run(network, ranks, stage_zero(s, cut));
        CHECK(greatest_difference(parts.losses, whole.losses) < 1e-5);
        CHECK(greatest_difference(parts.norms, whole.norms) < 1e-5);
        CHECK(parts.state.size() == whole.state.size());
      }
    }
  }
}

TEST_CASE("stages 1 to 3 without accumulation or clipping change no bit of the weights") {
  for (const Network& network : networks()) {
    const std::vector<std::string> plain{"training={global_batch_size: 24, max_steps: 5}"};
    const LayoutRun whole = layout_run(network, 3, stage_zero(0, plain));
    for (int s : {1, 2, 3}) {
      INFO(network.name << ", stage " << s);
      const LayoutRun parts = layout_run(network, 3, stage_zero(s, plain));
      CHECK(parts.losses == whole.losses);
      CHECK(parts.state == whole.state);
    }
  }
}

TEST_CASE("ZeRO works with other optimizers, averages, groups, freezing and clipping") {
  const std::vector<std::vector<std::string>> variations{
      {"optimizer={type: adam, learning_rate: 0.01, weight_decay: 0.1}"},
      {"optimizer={type: sgd, learning_rate: 0.1}"},
      {"optimizer={type: sgd, learning_rate: 0.1, momentum: 0.9, nesterov: true}"},
      {"optimizer={type: adagrad, learning_rate: 0.01}"},
      {"optimizer={type: rmsprop, learning_rate: 0.001, momentum: 0.9, centered: true}"},
      {"optimizer={type: lion, learning_rate: 0.001}"},
      {"optimizer={type: lars, learning_rate: 0.5, weight_decay: 0.01}"},
      {"optimizer={type: lars, learning_rate: 0.5, momentum: 0, always_adapt: true}"},
      {"optimizer={type: lamb, learning_rate: 0.01}"},
      {"optimizer={type: adafactor, learning_rate: 0.01}"},
      {"training={global_batch_size: 24, max_steps: 5, ema: {decay: 0.5}}"},
      {"optimizer={type: adamw, learning_rate: 0.01, weight_decay_on: matrices, groups: [{match: "
       "\"*.bias\", lr_scale: 0.5}]}"},
      {"training.freeze=[\"h.0.*\", \"wpe.weight\"]"},
      {"training={global_batch_size: 24, max_steps: 5, max_grad_value: 0.01}"},
      {"training={global_batch_size: 24, max_steps: 5, clip_percentile: {window: 4, min_history: "
       "1, "
       "percentile: 50}}"}};
  for (const std::vector<std::string>& overrides : variations) {
    const LayoutRun whole = layout_run(gpt(), 2, stage_zero(0, overrides));
    for (int s : {1, 2, 3}) {
      INFO(overrides[0] << ", stage " << s);
      const LayoutRun parts = layout_run(gpt(), 2, stage_zero(s, overrides));
      CHECK(greatest_difference(parts.losses, whole.losses) < 2e-5);
      CHECK(parts.state.size() == whole.state.size());
    }
  }
}

TEST_CASE("ZeRO trains in bf16 and fp16 as whole state does") {
  for (const char* precision : {"bf16", "fp16"}) {
    for (const Network& network : networks()) {
      const std::vector<std::string> compute{fmt::format("precision.compute={}", precision)};
      const LayoutRun whole = layout_run(network, 2, stage_zero(0, compute));
      const int bits = precision[0] == 'b' ? kBitsOfBf16 : kBitsOfFp16;
      const Tolerance tolerance = low_precision(network, stage_zero(0), bits);
      for (int s : {1, 2, 3}) {
        INFO(network.name << " in " << precision << ", stage " << s);
        const LayoutRun parts = layout_run(network, 2, stage_zero(s, compute));
        check_close(parts, whole, tolerance);
      }
    }
  }
}

TEST_CASE("gradients that travel in bf16 train as others but for their rounding") {
  for (const Network& network : networks()) {
    const LayoutRun exact = layout_run(network, 2, stage_zero(0));
    const Tolerance tolerance = low_precision(network, stage_zero(0), kBitsOfBf16, 2);
    for (int s : {0, 1, 2, 3}) {
      INFO(network.name << ", stage " << s);
      const LayoutRun rounded =
          layout_run(network, 2, stage_zero(s, {"parallelism.reduce_dtype=bf16"}));
      check_close(rounded, exact, tolerance);
      CHECK(rounded.losses.back() != exact.losses.back());
      CHECK(rounded.report.traffic.reduced + rounded.report.traffic.scattered <
            0.7 * static_cast<double>(exact.report.traffic.reduced));
    }
  }
}

TEST_CASE("an evaluation under ZeRO is that of whole state") {
  const std::vector<std::string> eval{
      "data.eval={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 13, seed: 2}",
      "training={global_batch_size: 24, max_steps: 2}", "evaluation.eval_steps=1",
      "model.final_bias_from_data=true"};
  for (const char* more : {"training.ema={decay: 0.5}", "precision.compute=bf16", ""}) {
    INFO(more);
    std::vector<std::string> overrides = eval;
    if (*more != '\0') overrides.emplace_back(more);
    const LayoutRun whole = layout_run(mlp(), 3, stage_zero(0, overrides));
    for (int s : {1, 2, 3}) {
      CHECK(layout_run(mlp(), 3, stage_zero(s, overrides)).evaluation ==
            Approx(whole.evaluation).epsilon(1e-6));
    }
  }
}

TEST_CASE("LARS, LAMB, Adafactor and averages under ZeRO have the state of whole tensors") {
  for (const char* optimizer : {"optimizer={type: lars, learning_rate: 0.5, weight_decay: 0.01}",
                                "optimizer={type: lamb, learning_rate: 0.01}",
                                "optimizer={type: adafactor, learning_rate: 0.01}",
                                "optimizer={type: sgd, learning_rate: 0.1}"}) {
    const std::vector<std::string> plain{
        optimizer, "training={global_batch_size: 24, max_steps: 5, ema: {decay: 0.5}}"};
    for (const Network& network : networks()) {
      const LayoutRun whole = layout_run(network, 4, stage_zero(0, plain));
      for (int s : {1, 2, 3}) {
        for (const char* group : {"all", "2"}) {
          if (s != 2 && *group == '2') continue;
          INFO(network.name << ", " << optimizer << ", stage " << s << ", groups " << group);
          std::vector<std::string> cut = plain;
          cut.push_back(fmt::format("parallelism.zero_shard_size={}", group));
          const LayoutRun parts = layout_run(network, 4, stage_zero(s, cut));
          CHECK(greatest_difference(parts.losses, whole.losses) < 1e-5);
          REQUIRE(parts.state.size() == whole.state.size());
          for (const auto& [name, bytes] : whole.state) {
            INFO(name);
            REQUIRE(parts.state.contains(name));
            const auto of = [](const std::vector<std::byte>& from) {
              std::vector<float> out(from.size() / sizeof(float));
              std::memcpy(out.data(), from.data(), from.size());
              return out;
            };
            const std::vector<float> a = of(parts.state.at(name)), b = of(bytes);
            REQUIRE(a.size() == b.size());
            double most = 0;
            for (size_t i = 0; i < a.size(); ++i) {
              most = max_or_inf(most, std::abs(double{a[i]} - b[i]) / (std::abs(b[i]) + 1e-3));
            }
            CHECK(most < 1e-3);
          }
        }
      }
    }
  }
}

TEST_CASE("a layer may be called as a kind of state is") {
  const Network named{"named",
                      {"model.layers=[flatten, {linear: 8, name: momentum}, gelu, {linear: 8, "
                       "name: ema}, {linear: 5, name: low_precision}]",
                       "data.train={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 96}"}};
  const std::vector<std::string> plain{
      "optimizer={type: sgd, learning_rate: 0.1, momentum: 0.9}", "precision.compute=bf16",
      "training={global_batch_size: 24, max_steps: 2, ema: {decay: 0.5}}"};
  for (int s : {0, 3}) {
    const LayoutRun run = layout_run(named, 2, stage_zero(s, plain));
    for (const char* state :
         {"momentum.weight", "momentum of momentum.weight", "ema of momentum.weight",
          "momentum of ema.weight", "ema of low_precision.weight"}) {
      INFO(state);
      CHECK(run.state.contains(state));
    }
    CHECK(run.state.size() == 18);
  }
}

TEST_CASE("a parameter takes the bytes that the formulas say, and they are what is allocated") {
  // Products alone, in bf16 with f32 masters and gradients; no padding.
  const Network products{
      "products",
      {"model.layers=[{linear: {out_features: 64, bias: false}}, {linear: {out_features: 64, bias: "
       "false}}]",
       "data.train={type: synthetic, shape: [64], classes: 64, samples: 96}",
       "precision.compute=bf16"}};
  const double parameters = 2 * 64 * 64;
  for (int n : {2, 4}) {
    const double each[] = {18, 6 + 12.0 / n, 2 + 16.0 / n, 18.0 / n};
    // Messages of the size of all parameters: gradients travel in f32, copies in bf16. The backward
    // of the first of two equal layers needs no weight, since nobody asks for the gradient of data.
    const auto p = static_cast<size_t>(parameters);
    const size_t scattered[] = {0, 4 * p, 4 * p, 4 * p}, gathered[] = {0, 2 * p, 2 * p, 3 * p};
    for (int s : {0, 1, 2, 3}) {
      INFO("stage " << s << ", " << n << " ranks");
      const LayoutRun run = layout_run(products, n, stage_zero(s, {}));
      double bytes = 0;
      for (const auto& [role, size] : run.report.state_bytes) {
        if (role == "parameters" || role == "low-precision copies" || role == "gradients" ||
            role == "optimizer moments") {
          bytes += static_cast<double>(size);
        }
      }
      CHECK(bytes == parameters * each[s]);
      CHECK(run.report.arena_bytes == run.report.state_total + run.report.work_bytes);
      CHECK(run.report.traffic.scattered == scattered[s]);
      CHECK(run.report.traffic.gathered == gathered[s]);
      CHECK(run.report.traffic.reduced < (s == 0 ? 4 * p : 0) + 64);  // metrics, squares
      // The mean of five steps, except for alignment gaps and the messages of the training loop.
      CHECK(std::abs(run.report.traffic.sent() - static_cast<double>(run.sent_within) / 5) < 1200);
    }
  }
}

TEST_CASE("what ZeRO cannot cut is refused by name and place") {
  const auto refused = [](const std::string& override, const std::string& says) {
    std::string message;
    try {
      layout_experiment(mlp(), stage_zero(1, {override}));
    } catch (const ConfigError& error) {
      message = error.what();
    }
    INFO(override << ": " << message);
    CHECK(message.find(says) != std::string::npos);
  };
  refused("training.reduction=fixed", "not added in the order");
}
