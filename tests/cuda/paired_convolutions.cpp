// A small residual network on the emulated CUDA kernels, with convolutions that leave the
// statistics of their batch norms (passes/pair_convolutions.h) and without: both compute the same
// bits, by the same kernels in the same order.
#include <cmath>

#include "catch.h"
#include "checkpointed_state.h"
#include "config/load.h"
#include "cuda/batch_norm.h"
#include "cuda/makers.h"
#include "cuda_emulation/engine.h"
#include "ops/compare.h"
#include "reference/engine.h"
#include "shared/host_memory.h"
#include "train/session.h"
#include "train/trainer.h"

using namespace dltrain;

namespace {

// The same kernels on a device that is no GPU, for which no pass pairs anything.
const Engine& unpaired_engine() {
  static const Engine engine = [] {
    Engine out = emulated_cuda_engine();
    out.open = [](int) { return make_host_device("emulation", "emulation"); };
    return out;
  }();
  return engine;
}

// How many kernels of conv2d_batch_norm were asked for.
int joined_kernels = 0;

// The emulated engine, which counts them.
const Engine& paired_engine() {
  static const std::vector<KernelRow> rows = [] {
    std::vector<KernelRow> out{
        {"conv2d_batch_norm", "counted", [](const KernelRequest&) -> std::unique_ptr<Kernel> {
           ++joined_kernels;
           return nullptr;
         }}};
    out.insert(out.end(), cuda_own_rows().begin(), cuda_own_rows().end());
    return out;
  }();
  static const Engine engine = [] {
    Engine out = emulated_cuda_engine();
    out.kernels = rows.data();
    out.kernel_count = rows.size();
    return out;
  }();
  return engine;
}

struct Run {
  std::vector<double> losses;
  double evaluated = 0;
  std::vector<std::byte> state;  // parameters, running statistics and moments
  std::string training;          // the graph
  int joined = 0;                // convolutions that evaluation has with their norms
};

constexpr const char* kLayers = R"(model.layers=[
  {type: conv2d, out_channels: 8, kernel_size: 3, padding: 1, bias: false}, batch_norm, relu,
  {type: residual, layers: [
    {type: conv2d, out_channels: 8, kernel_size: 3, padding: 1, bias: false}, batch_norm, relu,
    {type: conv2d, out_channels: 8, kernel_size: 1, bias: false}, {type: batch_norm, momentum: 0.3}]},
  relu, {type: conv2d, out_channels: 4, kernel_size: 3, stride: 2}, batch_norm, flatten, {linear: 5}])";

Run train_on_paired_convolutions(const Engine& engine, const std::vector<std::string>& extra) {
  std::vector<std::string> overrides{
      kLayers,
      "data.train={type: synthetic, shape: [5, 5, 3], classes: 5, samples: 32}",
      "data.eval={type: synthetic, shape: [5, 5, 3], classes: 5, samples: 8}",
      "optimizer={type: sgd, learning_rate: 0.1, momentum: 0.9}",
      "training={global_batch_size: 8, max_steps: 4}",
      "logging.logging_steps=1",
      "device=cpu"};  // the place where the session takes `engine`
  overrides.insert(overrides.end(), extra.begin(), extra.end());
  auto experiment = load_config<Experiment>({.files = {}, .overrides = overrides});
  Run out;
  SessionOptions options{.engines = {.cpu = &engine, .reference = &reference_engine()}};
  options.log = [&](std::string_view pass, const Graph& graph) {
    if (pass == "fuse") out.training = print_graph(graph);
  };
  joined_kernels = 0;
  Session session = open_session(experiment, options);
  out.joined = joined_kernels;
  start_session(session);
  TrainEvents events;
  events.on_step = [&](const StepRecord& record) { out.losses.push_back(record.loss); };
  train(session, events, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  out.state = checkpointed_state(*session.executor);
  out.evaluated = evaluate(session, 4)->metrics.front().second;
  return out;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_CASE("paired convolutions and norms train to the same bits as they do apart") {
  using Overrides = std::vector<std::string>;
  for (const Overrides& extra : {Overrides{}, Overrides{"precision.compute=bf16"},
                                 Overrides{"precision.compute=bf16", "training.micro_batch_size=4"},
                                 Overrides{"precision.compute=bf16", "memory.recompute=selective"},
                                 Overrides{"precision.compute=fp16", "memory.recompute=full"}}) {
    INFO((extra.empty() ? "f32" : extra.back()));
    const Run paired = train_on_paired_convolutions(paired_engine(), extra),
              apart = train_on_paired_convolutions(unpaired_engine(), extra);
    // The last convolution has a bias and stays.
    CHECK(count(paired.training, " = conv2d_moments(") == 3);
    CHECK(paired.joined == 3);
    CHECK(count(apart.training, "conv2d_moments") == 0);
    REQUIRE(paired.losses.size() == 4);
    CHECK(paired.losses == apart.losses);
    CHECK(paired.state == apart.state);
    // Relu and the residual join the norm where it is paired: not rounded in between.
    CHECK(paired.evaluated == Approx(apart.evaluated).epsilon(extra.empty() ? 1e-6 : 0.02));
  }
}

// Of 4096 values whose mean is `ratio` deviations, rounded to `dtype`: what is wrong in the
// normalised values by a variance from sums in f32, over what is wrong in them by the rounding.
double loss_by_sums(DType dtype, double ratio) {
  constexpr int64_t kRows = 4096;
  const HostTensor noise = random_tensor({Shape{kRows}, DType::f64}, "values");
  HostTensor y({Shape{kRows}, dtype});
  float sum = 0, squares = 0;
  double mean = 0, variance = 0;
  for (int64_t i = 0; i < kRows; ++i) {
    y.set(i, ratio + noise.get(i));
    const auto value = static_cast<float>(y.get(i));
    sum += value;
    squares += value * value;
    mean += y.get(i) / kRows;
  }
  for (int64_t i = 0; i < kRows; ++i) variance += std::pow(y.get(i) - mean, 2) / kRows;
  float found_mean = 0, found_variance = 0;
  launch_moments_of_sums(kRows, 1, &sum, &squares, &found_mean, &found_variance, nullptr);
  const double by_mean = std::abs(found_mean - mean) / std::sqrt(variance),
               by_variance = std::abs(found_variance / variance - 1) / 2,
               by_rounding = unit_roundoff(dtype) / 2 * std::max(1.0, ratio);
  return std::max(by_mean, by_variance) / by_rounding;
}

TEST_CASE("the variance from sums in f32 is lost less than 16-bit values are") {
  for (const double ratio : {0.0, 1.0, 3.0, 10.0, 30.0, 100.0}) {
    INFO("a mean of " << ratio << " deviations");
    CHECK(loss_by_sums(DType::bf16, ratio) < 1);
    CHECK(loss_by_sums(DType::f16, ratio) < 1);
  }
  float sum = 2, squares = 1.9999f, mean = 0, variance = 0;  // of two values that are 1, nearly
  launch_moments_of_sums(2, 1, &sum, &squares, &mean, &variance, nullptr);
  CHECK(variance == 0);  // not below
}

TEST_CASE("paired convolutions and norms start with the loss of the reference") {
  const Run paired = train_on_paired_convolutions(paired_engine(), {}),
            exact = train_on_paired_convolutions(reference_engine(), {});
  CHECK(count(exact.training, "conv2d_moments") == 0);
  REQUIRE(paired.losses.size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    INFO("step " << i + 1);
    // A relu that flips moves later losses.
    CHECK(paired.losses[i] == Approx(exact.losses[i]).epsilon(i == 0 ? 2e-6 : 1e-3));
  }
}

}  // namespace
