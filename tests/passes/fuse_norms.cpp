#include "passes/fuse_norms.h"

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

struct FuseNormsExample : NormExample {
  explicit FuseNormsExample(DType type = DType::f32) : NormExample(type) {}

  ValueId x = b.add_value("x", {Shape{6, 4}, dtype}, Role::input);
  ValueId residual = b.add_value("residual", {Shape{6, 4}, dtype}, Role::input);

  ValueId vector(const char* name) {
    parameters.push_back(b.add_value(fmt::format("{}{}", name, parameters.size()),
                                     {Shape{4}, dtype}, Role::parameter));
    return parameters.back();
  }
  ValueId norm(ValueId from) {
    const ValueId gamma = vector("gamma"), beta = vector("beta");
    return b.emit("batch_norm", {from, gamma, beta}, {{"epsilon", 0.5}})[0];
  }
};

std::string fused_fuse_norms(Graph graph) {
  fuse_norms(graph);
  verify_graph(graph);
  return print_graph(graph);
}

TEST_CASE("relu and the sum before it become part of the batch norm") {
  FuseNormsExample e;
  const ValueId y = e.relu(e.norm(e.x));
  e.loss(e.relu(e.add(e.norm(y), e.residual)));
  CHECK_THAT(fused_fuse_norms(e.graph),
             Catch::Matchers::StartsWith(
                 "forward:\n"
                 "  %7, %5, %6 = batch_norm(x, gamma0, beta1) {activation=relu, epsilon=0.5} : "
                 "f32[6, 4], f32[4], f32[4]\n"
                 "  %14, %11, %12 = batch_norm(%7, gamma2, beta3, residual) {activation=relu, "
                 "epsilon=0.5} : f32[6, 4], f32[4], f32[4]\n"
                 "  %15 = tanh(%14) : f32[6, 4]\n"));
}

TEST_CASE("of a sum of two norms the later one takes the other's value") {
  FuseNormsExample e;
  const ValueId first = e.norm(e.x);
  e.loss(e.relu(e.add(first, e.norm(e.residual))));
  CHECK_THAT(fused_fuse_norms(e.graph),
             Catch::Matchers::Contains("batch_norm(residual, gamma2, beta3, %4) {activation=relu"));
}

TEST_CASE("the gradient of relu becomes part of the batch norm's") {
  FuseNormsExample e;
  const ValueId loss = e.loss(e.relu(e.norm(e.x)));
  reverse(e.graph, {loss}, e.parameters);
  const std::string text = fused_fuse_norms(eliminate_dead_code(e.graph));
  CHECK(text.find("relu_backward") == std::string::npos);
  CHECK_THAT(text, Catch::Matchers::Contains("gamma0, %5, %6, beta1) {activation=relu"));
}

TEST_CASE("a norm stays as it is where others read what lies between") {
  FuseNormsExample two_readers;
  const ValueId normalised = two_readers.norm(two_readers.x);
  two_readers.loss(two_readers.relu(normalised));
  two_readers.b.accumulate(two_readers.b.emit1("identity", {normalised}), "seen", Role::metric);
  CHECK(fused_fuse_norms(two_readers.graph) == print_graph(two_readers.graph));

  FuseNormsExample late;  // the residual comes after the norm
  const ValueId before = late.norm(late.x);
  late.loss(late.relu(late.add(before, late.b.emit1("tanh", {late.residual}))));
  CHECK(fused_fuse_norms(late.graph) == print_graph(late.graph));

  FuseNormsExample twice;  // the norm plus itself
  const ValueId value = twice.norm(twice.x);
  twice.loss(twice.relu(twice.add(value, value)));
  CHECK(fused_fuse_norms(twice.graph) == print_graph(twice.graph));

  FuseNormsExample other;  // another activation, and a sum that nobody rectifies
  other.loss(other.b.emit1("silu", {other.norm(other.x)}));
  other.loss(other.add(other.norm(other.x), other.residual));
  CHECK(fused_fuse_norms(other.graph) == print_graph(other.graph));

  FuseNormsExample phases;
  const ValueId forward = phases.norm(phases.x);
  phases.b.set_phase(Phase::backward);
  phases.loss(phases.relu(forward));
  CHECK(fused_fuse_norms(phases.graph) == print_graph(phases.graph));
}

// A few norms in a row, rectified or not, with residuals of any earlier value.
Graph random_net_fuse_norms(uint64_t seed, DType dtype) {
  FuseNormsExample e(dtype);
  uint64_t draws = 0;
  const auto draw = [&](uint32_t below) {
    return random_bits(seed, random_stream("norms"), 0, draws++) % below;
  };
  std::vector<ValueId> values{e.x, e.residual};
  for (int i = 0; i < 6; ++i) {
    const ValueId from = values[values.size() - 1 - draw(2)];
    const ValueId other = values[draw(static_cast<uint32_t>(values.size()))];
    ValueId y = draw(8) == 0 ? e.b.emit1("tanh", {from}) : e.norm(from);
    if (draw(2) == 0) y = draw(2) == 0 ? e.add(y, other) : e.add(other, y);
    if (draw(4) != 0) y = e.relu(y);
    values.push_back(y);
  }
  const ValueId loss = e.loss(values.back());
  reverse(e.graph, {loss}, e.parameters);
  return eliminate_dead_code(e.graph);
}

TEST_CASE("fused norms keep the results of random nets") {
  int forward = 0, with_residual = 0, backward = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    const bool doubles = seed % 2 == 0;
    const Graph before = random_net_fuse_norms(seed, doubles ? DType::f64 : DType::f32);
    const Graph after = fuse(before);
    CHECK(print_graph(fuse(after)) == print_graph(after));
    const auto expected = results_of(before), found = results_of(after);
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      for (size_t k = 0; k < found[i].size(); ++k) {
        const double tolerance = doubles ? 0 : 2e-6 * (1 + std::abs(expected[i][k]));
        CHECK(std::abs(found[i][k] - expected[i][k]) <= tolerance);
      }
    }
    for (const Node& node : after.nodes) {
      if (node.attributes.text("activation").empty()) continue;
      forward += node.op->name == "batch_norm";
      with_residual += node.op->name == "batch_norm" && node.inputs.size() == 4;
      backward += node.op->name == "batch_norm_backward";
    }
  }
  CHECK(forward > 60);
  CHECK(with_residual > 20);
  CHECK(backward > 20);
}

}  // namespace
}  // namespace dltrain
