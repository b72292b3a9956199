// training.optimizer_in_backward: the same bits as updates at the end, with less memory.
#include "refusal.h"
#include "run/short_run.h"

using namespace dltrain;

namespace {

constexpr const char* kInBackward = "training={optimizer_in_backward: true, max_grad_norm: null}";
constexpr const char* kAtEnd = "training={max_grad_norm: null}";
// Gradients of 8 MiB and more are updated by themselves.
constexpr const char* kWide = "[flatten, {linear: 30000}, relu, {linear: 96}, tanh, {linear: 5}]";

ShortRun run_with(const char* layers, std::vector<std::string> overrides, Variation more = {}) {
  more.overrides = std::move(overrides);
  return short_run(layers, more);
}

Session open(const std::vector<std::string>& more) {
  std::vector<std::string> overrides{
      "data.train={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 64}",
      "optimizer={type: adamw, learning_rate: 0.01}", "device=cpu",
      "training={global_batch_size: 16, max_steps: 8}", std::string("model.layers=") + kWide};
  overrides.insert(overrides.end(), more.begin(), more.end());
  auto experiment = load_config<Experiment>({.files = {}, .overrides = overrides});
  return open_session(experiment,
                      {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}});
}

}  // namespace

TEST_CASE("updates in the backward give the bits of updates at its end") {
  const std::vector<std::vector<std::string>> variations{
      {"seed=0"},
      {"optimizer={type: sgd, learning_rate: 0.05, momentum: 0.9, nesterov: true}"},
      {"precision.compute=bf16"},
      {"precision={compute: bf16, parameters: bf16}"},
      {"memory.recompute=full"},
      {"training.ema={decay: 0.9}"},
      {"optimizer={type: adamw, learning_rate: 0.01, moments: 8bit, min_8bit_size: 256}"},
      {"optimizer={type: lion, learning_rate: 0.001, weight_decay: 0.1, groups: [{match: '*.bias', "
       "freeze: true}]}"}};
  for (const char* layers : {kMlp, kConvnet, kWide}) {
    for (std::vector<std::string> variation : variations) {
      INFO(layers << " " << variation[0]);
      variation.insert(variation.begin(), kAtEnd);
      const ShortRun at_end = run_with(layers, variation);
      variation[0] = kInBackward;
      const ShortRun in_backward = run_with(layers, variation);
      CHECK(in_backward.losses == at_end.losses);
      CHECK(in_backward.state == at_end.state);
    }
  }
}

TEST_CASE("updates in the backward keep few gradients in memory") {
  Session at_end = open({kAtEnd}), in_backward = open({kInBackward});
  const size_t saved = at_end.executor->training_program().work_bytes() -
                       in_backward.executor->training_program().work_bytes();
  // The gradients of the first two layers, of 8.6 and 11.5 MB, are not there at the same time.
  CHECK(saved > 6000000);
}

TEST_CASE("clipping by the norm of the step before") {
  const auto clipped = [](const char* limit, const char* layers = kMlp,
                          const char* more = "seed=0") {
    return run_with(layers, {kInBackward, "optimizer={type: sgd, learning_rate: 0.05}",
                             fmt::format("training.max_grad_norm={}", limit),
                             "training.clip_norm=previous", more});
  };
  const ShortRun free = run_with(kMlp, {kInBackward, "optimizer={type: sgd, learning_rate: 0.05}"});
  const ShortRun loose = clipped("1e6"), tight = clipped("0.01");
  CHECK(loose.losses == free.losses);
  // The first step is not clipped, so the second loss is the same; the third differs.
  CHECK(tight.losses[1] == free.losses[1]);
  CHECK(tight.losses[2] != free.losses[2]);
  // The norm is a sum over several groups of updates here.
  CHECK(clipped("0.01", kWide).state == clipped("0.01", kWide, "memory.recompute=full").state);
}

TEST_CASE("a loss that is not finite changes nothing") {
  // The first update makes weights so large that every later loss is NaN.
  const auto state_after = [](int steps) {
    return run_with(kMlp, {kInBackward, "optimizer={type: sgd, learning_rate: 1.0e+30}",
                           "lr_scheduler={type: constant}", "training.on_non_finite=skip",
                           fmt::format("training.max_steps={}", steps)})
        .state;
  };
  CHECK(state_after(4) == state_after(1));
}

TEST_CASE("optimizer_in_backward refuses what needs all gradients") {
  const auto refused = [](std::vector<std::string> more) {
    more.insert(more.begin(), kInBackward);
    return refusal_of([&] { open(more); }, ExitCode::usage);
  };
  const auto says = [](const std::string& message, const char* words) {
    INFO(message);
    CHECK(message.find("optimizer_in_backward") != std::string::npos);
    CHECK(message.find(words) != std::string::npos);
  };
  says(refused({"training.max_grad_norm=1"}), "clip_norm: previous");
  says(refused({"training.clip_percentile={}"}), "norm of all gradients");
  says(refused({"training.clip_norm=previous"}), "max_grad_norm");
  says(refused({"training.micro_batch_size=8"}), "one micro-batch");
  says(refused({"precision.compute=fp16"}), "overflow");
  says(refused({"optimizer={type: lamb, learning_rate: 0.01}"}), "sums over a whole tensor");
}
