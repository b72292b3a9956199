// logging.gradient_noise: the estimate, and the sums that a run gives it.
#include "run/gradient_noise.h"

#include <random>

#include "refusal.h"
#include "run/layout_run.h"
#include "run/short_run.h"

using namespace dltrain;

namespace {

// The metrics and gradient norm of the first step of the MLP.
StepRecord first_step(std::vector<std::string> overrides) {
  overrides.insert(
      overrides.begin(),
      {"model.layers=[flatten, {linear: 24}, gelu, {linear: 5}]", "device=cpu",
       "data.train={type: synthetic, shape: [6, 6, 2], classes: 5, samples: 64, shuffle: false}",
       "optimizer={type: sgd, learning_rate: 0.01}", "logging.logging_steps=1",
       "training={global_batch_size: 16, max_steps: 1}"});
  auto experiment = load_config<Experiment>({.files = {}, .overrides = overrides});
  Session session = open_session(
      experiment, {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}});
  start_session(session);
  StepRecord out;
  TrainEvents events;
  events.on_step = [&](const StepRecord& record) { out = record; };
  train(session, events, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  return out;
}

double noise_scale(const StepRecord& record) {
  for (const auto& [label, value] : record.metrics) {
    if (label == "gradient_noise_scale") return value;
  }
  FAIL("no gradient_noise_scale");
  return 0;
}

}  // namespace

TEST_CASE("the noise scale of gradients with a known one") {
  // Gradients of 40 numbers: mean 1 each, and of one sample a standard deviation of 3: 9·40 / 40.
  std::mt19937_64 random(5);
  const auto sample_mean = [&](int64_t samples) {
    std::normal_distribution<double> noise(1, 3 / std::sqrt(static_cast<double>(samples)));
    std::vector<double> out(40);
    for (double& x : out) x = noise(random);
    return out;
  };
  const auto square = [](const std::vector<double>& x) {
    double sum = 0;
    for (const double v : x) sum += v * v;
    return sum;
  };
  for (const auto& [ranks, micro_steps] : {std::pair<int, int>{1, 4}, {3, 1}, {2, 5}}) {
    GradientNoise noise(ranks, micro_steps, 2);
    CHECK(std::isnan(noise.scale()));
    double mean = 0;
    for (int step = 0; step < 4000; ++step) {
      double squares = 0;
      std::vector<double> all(40);
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<double> sum(40);
        for (int micro = 0; micro < micro_steps; ++micro) {
          const std::vector<double> gradient = sample_mean(2);
          for (size_t i = 0; i < 40; ++i) sum[i] += gradient[i] / (ranks * micro_steps);
          squares += square(sum);
        }
        for (size_t i = 0; i < 40; ++i) all[i] += sum[i];
      }
      noise.add(squares, std::sqrt(square(all)));
      if (step >= 400) mean += noise.scale() / 3600;
    }
    INFO(ranks << " ranks, " << micro_steps << " micro-steps");
    CHECK(mean == Approx(9).margin(0.6));
  }
}

TEST_CASE("a run sums the squares of its gradients after each micro-batch") {
  const double whole = first_step({}).grad_norm;
  const double half = first_step({"training.global_batch_size=8"}).grad_norm / 2;
  GradientNoise expected(1, 2, 8);
  expected.add(half * half + whole * whole, whole);
  const std::vector<std::string> two{"training.micro_batch_size=8", "logging.gradient_noise=true"};
  const StepRecord found = first_step(two);
  CHECK(std::abs(found.grad_norm - whole) < 1e-5 * whole);
  CHECK(std::abs(noise_scale(found) - expected.scale()) < 1e-3 * std::abs(expected.scale()));
}

TEST_CASE("the squares of gradients change no other number, whatever the layout") {
  const ShortRun plain =
      short_run(kConvnet, {.overrides = {"training.micro_batch_size=4"}, .in_flight = 1});
  const ShortRun noted = short_run(
      kConvnet, {.overrides = {"training.micro_batch_size=4", "logging.gradient_noise=true"}});
  CHECK(noted.losses == plain.losses);
  CHECK(noted.state == plain.state);
  for (const Network& network : networks()) {
    INFO(network.name);
    const LayoutRun alone = layout_run(network, 3, {"training.micro_batch_size=4"});
    CHECK(layout_run(network, 3, {"training.micro_batch_size=4", "logging.gradient_noise=true"})
              .state == alone.state);
  }
}

TEST_CASE("gradient_noise needs two micro-batches") {
  const std::string message =
      refusal_of([] { first_step({"logging.gradient_noise=true"}); }, ExitCode::usage);
  CHECK(message.find("training.micro_batch_size to at most 8") != std::string::npos);
}
