#include "passes/pair_convolutions.h"

#include <cmath>

#include "base/philox.h"
#include "catch.h"
#include "graph/reverse.h"
#include "norm_example.h"
#include "passes/dead_code.h"
#include "passes/fuse.h"
#include "run_graph.h"

namespace dltrain {
namespace {

struct PairConvolutionsExample : NormExample {
  explicit PairConvolutionsExample(DType type = DType::f32) : NormExample(type) {}

  ValueId x = b.add_value("x", {Shape{2, 4, 3, 4}, dtype}, Role::input);

  ValueId state(const char* name, const Shape& shape, Role role = Role::parameter) {
    const ValueId id =
        b.add_value(fmt::format("{}{}", name, graph.values.size()), {shape, dtype}, role);
    if (role == Role::parameter) parameters.push_back(id);
    return id;
  }
  ValueId convolution(ValueId from, bool bias = false) {
    std::vector<ValueId> inputs{from, state("w", Shape{4, 3, 3, 4})};
    if (bias) inputs.push_back(state("bias", Shape{4}));
    return b.emit1("conv2d", inputs, {{"padding", std::vector<int64_t>{1, 1}}});
  }
  ValueId norm(ValueId from) {
    const ValueId gamma = state("gamma", Shape{4}), beta = state("beta", Shape{4});
    const auto out = b.emit("batch_norm", {from, gamma, beta}, {{"epsilon", 0.5}});
    b.accumulate(b.emit1("identity", {out[1]}), fmt::format("mean{}", out[1]), Role::statistic);
    b.accumulate(b.emit1("identity", {out[2]}), fmt::format("variance{}", out[2]), Role::statistic);
    return out[0];
  }
  ValueId given_norm(ValueId from) {
    std::vector<ValueId> inputs{from};
    for (const char* name : {"gamma", "beta", "mean"}) inputs.push_back(state(name, Shape{4}));
    // A positive variance.
    inputs.push_back(b.emit1("square", {state("variance", Shape{4})}));
    return b.emit1("batch_norm_inference", inputs, {{"epsilon", 0.5}});
  }
};

std::string paired(Graph graph) {
  pair_convolutions(graph);
  verify_graph(graph);
  return print_graph(graph);
}

std::string fused_pair_convolutions(const Graph& graph) {
  const Graph once = fuse(graph, {.pair_convolutions = true});
  CHECK(print_graph(fuse(once, {.pair_convolutions = true})) == print_graph(once));
  return print_graph(once);
}

size_t count_pair_convolutions(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_CASE("a convolution leaves the statistics of the batch norm behind it") {
  PairConvolutionsExample e;
  const ValueId y = e.relu(e.norm(e.convolution(e.x)));
  e.loss(e.relu(e.add(e.norm(e.convolution(y)), e.x)));
  CHECK_THAT(fused_pair_convolutions(e.graph),
             Catch::Matchers::StartsWith(
                 "forward:\n"
                 "  %2, %6, %7 = conv2d_moments(x, w1) {padding=[1, 1]} : f32[2, 4, 3, 4], f32[4], "
                 "f32[4]\n"
                 "  %10 = batch_norm_inference(%2, gamma3, beta4, %6, %7) {activation=relu, "
                 "epsilon=0.5} : f32[2, 4, 3, 4]\n"));
}

TEST_CASE("a convolution and a norm by given statistics become one node") {
  PairConvolutionsExample e;
  const ValueId y = e.relu(e.given_norm(e.convolution(e.x)));
  e.loss(e.relu(e.add(e.given_norm(e.convolution(y)), y)));
  const std::string text = fused_pair_convolutions(e.graph);
  INFO(text);
  CHECK(count_pair_convolutions(text, " = conv2d_batch_norm(") == 2);
  CHECK(count_pair_convolutions(text, "{activation=relu, epsilon=0.5, padding=[1, 1]}") == 2);
  CHECK(count_pair_convolutions(text, "batch_norm_inference") +
            count_pair_convolutions(text, " = add(") + count_pair_convolutions(text, " relu(") ==
        0);
}

TEST_CASE("what has a bias, another reader or another phase stays as it is") {
  PairConvolutionsExample bias;
  bias.loss(bias.norm(bias.convolution(bias.x, true)));
  bias.loss(bias.given_norm(bias.convolution(bias.x, true)));
  CHECK(paired(bias.graph) == print_graph(bias.graph));

  PairConvolutionsExample rectified;
  rectified.loss(rectified.norm(rectified.relu(rectified.convolution(rectified.x))));
  CHECK(paired(rectified.graph) == print_graph(rectified.graph));

  PairConvolutionsExample read;  // of training both go on
  const ValueId y = read.convolution(read.x);
  read.loss(read.given_norm(y));
  read.loss(y);
  CHECK(paired(read.graph) == print_graph(read.graph));

  PairConvolutionsExample phases;
  const ValueId forward = phases.convolution(phases.x);
  phases.b.set_phase(Phase::backward);
  phases.loss(phases.norm(forward));
  CHECK(paired(phases.graph) == print_graph(phases.graph));

  PairConvolutionsExample twice;  // the second norm takes statistics of its own
  const ValueId both = twice.convolution(twice.x);
  twice.loss(twice.add(twice.norm(both), twice.norm(both)));
  const std::string text = paired(twice.graph);
  CHECK(count_pair_convolutions(text, "conv2d_moments(") == 1);
  CHECK(count_pair_convolutions(text, " = batch_norm(") == 1);
}

// Convolutions and norms in a row, rectified or not, with residuals of any earlier value.
Graph random_net_pair_convolutions(uint64_t seed, bool given) {
  PairConvolutionsExample e(DType::f64);
  uint64_t draws = 0;
  const auto draw = [&](uint32_t below) {
    return random_bits(seed, random_stream("pairs"), 0, draws++) % below;
  };
  std::vector<ValueId> values{e.x};
  for (int i = 0; i < 4; ++i) {
    const ValueId from = values[draw(static_cast<uint32_t>(values.size()))];
    const ValueId other = values[draw(static_cast<uint32_t>(values.size()))];
    ValueId y = draw(6) == 0 ? from : e.convolution(from, draw(6) == 0);
    y = given ? e.given_norm(y) : e.norm(y);
    if (draw(2) == 0) y = e.add(y, other);
    if (draw(4) != 0) y = e.relu(y);
    values.push_back(y);
  }
  for (size_t i = 1; i < values.size(); ++i) {
    const ValueId loss = e.loss(values[i]);
    if (!given && i + 1 == values.size()) reverse(e.graph, {loss}, e.parameters);
  }
  e.b.step_state();
  return eliminate_dead_code(e.graph);
}

TEST_CASE("pairs keep the results and the gradients of random nets to the bit") {
  size_t moments = 0, joined = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    const Graph before = random_net_pair_convolutions(seed, seed % 2 == 0);
    const Graph after = fuse(before, {.pair_convolutions = true});
    CHECK(results_of(after) == results_of(before));
    for (const Node& node : after.nodes) {
      moments += node.op->name == "conv2d_moments" ? 1 : 0;
      joined += node.op->name == "conv2d_batch_norm" ? 1 : 0;
    }
  }
  CHECK(moments > 20);
  CHECK(joined > 20);
}

}  // namespace
}  // namespace dltrain
