// Small experiments, sound or broken in one way, for tests of the sanity suite.
#pragma once

#include <fstream>

#include "base/philox.h"
#include "catch.h"
#include "checks/checks_support.h"
#include "config/load.h"
#include "cpu/engine.h"
#include "reference/engine.h"
#include "temporary_folder.h"

namespace dltrain {

inline constexpr const char* kData = "{type: synthetic, shape: [6], classes: 3, samples: 96}";
inline constexpr const char* kLayers = "[linear: 16, relu, linear: 3]";

// A layer of a test: emits what a function says.
struct TestLayer final : Layer {
  using Emit = std::function<ValueId(LayerContext&, ValueId)>;
  explicit TestLayer(Emit function) : function_(std::move(function)) { kind = "test"; }
  ValueId emit(LayerContext& context, ValueId x) const override { return function_(context, x); }
  Emit function_;
};

struct Setup {
  std::string data = kData;
  std::string layers = kLayers;
  std::vector<std::string> overrides = {};
  TestLayer::Emit first_layer = {};
  std::function<void(Experiment&)> change = {};
};

inline CheckOptions options_of(const Setup& setup) {
  return {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()},
          .load =
              [setup](const std::vector<std::string>& extra) {
                std::vector<std::string> overrides{
                    "model.layers=" + setup.layers, "data.train=" + setup.data,
                    "optimizer={type: adamw, learning_rate: 0.01}",
                    "training={global_batch_size: 32, max_steps: 50}", "device=cpu"};
                overrides.insert(overrides.end(), setup.overrides.begin(), setup.overrides.end());
                overrides.insert(overrides.end(), extra.begin(), extra.end());
                auto experiment = load_config<Experiment>({.files = {}, .overrides = overrides});
                if (setup.first_layer) {
                  experiment.model.layers.insert(experiment.model.layers.begin(),
                                                 std::make_unique<TestLayer>(setup.first_layer));
                }
                if (setup.change) setup.change(experiment);
                return experiment;
              },
          .on_result = {}};
}

// The results of run_checks() without advice.
inline std::vector<CheckResult> judged(std::vector<CheckResult> results) {
  std::erase_if(results, [](const CheckResult& r) { return r.outcome == CheckOutcome::note; });
  return results;
}

using Check = CheckResult (*)(const CheckOptions&, int64_t);

inline std::string failure(Check check, const Setup& setup) {
  const CheckResult result = check(options_of(setup), 32);
  INFO(result.detail);
  CHECK(result.outcome == CheckOutcome::fail);
  return result.detail;
}

inline void passes(Check check, const Setup& setup) {
  const CheckResult result = check(options_of(setup), 32);
  INFO(result.detail);
  CHECK(result.outcome == CheckOutcome::pass);
}

// A csv of `samples` lines: what `line` gives for each, from uniform numbers of its own.
class CsvFile {
 public:
  template <typename Line>
  CsvFile(const std::string& name, int samples, const Line& line) : path_(folder_.path() / name) {
    std::ofstream file(path_);
    for (int i = 0; i < samples; ++i) {
      uint64_t next = 0;
      file << line(i, [&] { return random_uniform(3, 5, static_cast<uint64_t>(i), next++); })
           << "\n";
    }
  }
  std::string section(const std::string& keys = "") const {
    return fmt::format("{{type: csv, path: {}{}}}", path_.string(), keys);
  }

 private:
  TemporaryFolder folder_;
  std::filesystem::path path_;
};

}  // namespace dltrain
