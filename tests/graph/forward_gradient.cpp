#include "graph/forward_gradient.h"

#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "catch.h"
#include "graph/builder.h"
#include "run_graph.h"
#include "tensor/normal_values.h"

namespace dltrain {
namespace {

const TensorSpec kForwardVector{Shape{3}, DType::f64};

// Σ (p·p·x − t)², with x = (1, 2, 3), p = (−1, 0.5, 2), t = 0.
struct ForwardExample {
  explicit ForwardExample(int directions) {
    const ValueId y = b.emit1("mul", {b.emit1("mul", {p, p}), x});
    const ValueId loss = b.emit1("elementwise_loss", {y, t}, {{"kind", "mse"}});
    gradients = forward_gradient(graph, loss, {p, unused}, directions);
    verify_graph(graph);
  }
  std::vector<double> gradient(int64_t step) const {
    GraphRun run(graph);
    run.set(x, {1, 2, 3});
    run.set(p, {-1, 0.5, 2});
    run.set(t, {0, 0, 0});
    run.set(unused, {0, 0, 0});
    run.step_state().in.seed = 5;
    run.step_state().in.step = step;
    run.step_state().in.inverse_valid = 1;
    run.step_state().out.loss_scale = 1;
    run.run(Phase::forward);
    run.run(Phase::backward);
    return run.get("gradient of p");
  }

  Graph graph;
  GraphBuilder b{graph};
  ValueId x = b.add_value("x", kForwardVector, Role::input);
  ValueId t = b.add_value("t", kForwardVector, Role::input);
  ValueId p = b.add_value("p", kForwardVector, Role::parameter);
  ValueId unused = b.add_value("unused", kForwardVector, Role::parameter);
  std::vector<ParameterGradient> gradients;
};

// 4·p³·x²
constexpr double kExact[] = {-4, 2, 288};

TEST_CASE("a forward gradient is the derivative along a random direction times that direction") {
  const ForwardExample e(1);
  REQUIRE(e.gradients.size() == 1);
  CHECK(e.gradients[0].parameter == e.p);
  const uint64_t stream = random_stream("direction 0 of p");
  for (const int64_t step : {0, 7}) {
    double v[3], derivative = 0;
    for (uint64_t i = 0; i < 3; ++i) {
      v[i] = normal_value(5, stream, static_cast<uint64_t>(step), i);
      derivative += v[i] * kExact[i];
    }
    const std::vector<double> found = e.gradient(step);
    for (size_t i = 0; i < 3; ++i) CHECK(found[i] == Approx(derivative * v[i]).epsilon(1e-12));
  }
}

TEST_CASE("forward gradients are unbiased over 100,000 directions") {
  constexpr int kDirections = 100, kSteps = 1000;
  const ForwardExample e(kDirections);
  double mean[3] = {}, squares[3] = {};
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<double> found = e.gradient(step);
    for (size_t i = 0; i < 3; ++i) {
      mean[i] += found[i] / kSteps;
      squares[i] += found[i] * found[i] / kSteps;
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    const double error = std::sqrt((squares[i] - mean[i] * mean[i]) / kSteps);
    INFO("element " << i << ": " << mean[i] << " ± " << error);
    CHECK(std::abs(mean[i] - kExact[i]) < 4 * error);
    CHECK(error < 3);  // about |∇f| / √100,000
  }
}

TEST_CASE("an op without a forward-mode rule is refused with its layer") {
  Graph graph;
  GraphBuilder b(graph);
  b.set_layer("layers.3");
  const ValueId x = b.add_value("x", {Shape{1, 3, 2}, DType::f64}, Role::input);
  const ValueId p = b.add_value("p", {Shape{2, 2}, DType::f64}, Role::parameter);
  const ValueId t = b.add_value("t", {Shape{1, 3, 2}, DType::f64}, Role::input);
  const ValueId y = b.emit1("recurrent_network", {x, p, p, kNoValue, kNoValue, kNoValue, kNoValue},
                            {{"kind", "rnn_tanh"}});  // passes replace it
  const ValueId loss = b.emit1("elementwise_loss", {y, t}, {{"kind", "mse"}});
  try {
    forward_gradient(graph, loss, {p}, 1);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::usage);
    CHECK(error.location() == "layers.3");
    CHECK(std::string(error.what()).find("recurrent_network") != std::string::npos);
  }
}

}  // namespace
}  // namespace dltrain
