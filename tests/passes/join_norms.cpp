#include "catch.h"
#include "computing_in.h"
#include "graph/builder.h"
#include "graph/reverse.h"
#include "passes/autocast.h"
#include "passes/dead_code.h"
#include "passes/fuse_norms.h"
#include "passes/remove_copies.h"
#include "run_graph.h"

namespace dltrain {
namespace {

// A residual stream with a layer norm and an RMS norm, each before a product, or after its addition
// as in BERT, and a loss.
Graph residual_stream(DType dtype, DType compute, bool norm_after = false) {
  Graph graph;
  GraphBuilder b(graph);
  std::vector<ValueId> parameters;
  const auto parameter = [&](const char* name, const Shape& shape) {
    parameters.push_back(b.add_value(name, {shape, dtype}, Role::parameter));
    return parameters.back();
  };
  const auto block = [&](ValueId x, ValueId y, const char* weight) {
    return b.emit1("add", {x, b.emit1("matmul", {y, parameter(weight, Shape{8, 8})})});
  };
  const ValueId targets = b.add_value("targets", {Shape{6}, DType::i32}, Role::input);
  const ValueId in = b.add_value("x", {Shape{6, 8}, dtype}, Role::input);
  const ValueId x = b.emit1("affine", {in}, {{"scale", 2.0}, {"shift", 0.0}});
  const auto layer_norm = [&](ValueId of) {
    return b.emit("layer_norm", {of, parameter("w", Shape{8}), parameter("b", Shape{8})},
                  {{"epsilon", 1e-5}})[0];
  };
  const auto rms_norm = [&](ValueId of) {
    return b.emit("rms_norm", {of, parameter("v", Shape{8})}, {{"epsilon", 1e-5}})[0];
  };
  ValueId end = kNoValue;
  if (norm_after) {
    const ValueId first = layer_norm(block(x, x, "m"));
    end = rms_norm(block(first, first, "n"));
  } else {
    const ValueId sum = block(x, layer_norm(x), "m");
    end = block(sum, rms_norm(sum), "n");
  }
  b.set_layer("loss");
  const ValueId loss = b.emit("softmax_cross_entropy", {end, targets})[0];
  b.accumulate(b.emit1("identity", {loss}), "metric.loss", Role::metric);
  if (compute != dtype) graph = autocast(std::move(graph), computing_in(compute), {});
  reverse(graph, {loss}, parameters);
  return eliminate_dead_code(std::move(graph));
}

Graph joined(Graph graph) {
  join_norms(graph, true);
  verify_graph(graph);
  return graph;
}

size_t count(const Graph& graph, std::string_view op) {
  return static_cast<size_t>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                           [&](const Node& n) { return n.op->name == op; }));
}

TEST_CASE("norms take over sums and casts around them") {
  const Graph before = residual_stream(DType::f32, DType::bf16);
  const Graph after = joined(before);
  INFO(print_graph(before) << print_graph(after));
  CHECK(count(before, "cast") == 8);
  CHECK(count(after, "cast") == 2);  // of the last product, and of the gradient of the logits
  CHECK(count(before, "add") == 3);
  CHECK(count(after, "add") == 1);
  CHECK(print_graph(joined(after)) == print_graph(after));
}

TEST_CASE("the gradient of a norm after an addition takes over the sum of its gradients") {
  const Graph before = residual_stream(DType::f32, DType::bf16, true);
  const Graph after = joined(before);
  INFO(print_graph(before) << print_graph(after));
  const auto sums = [](const Graph& graph) {
    return std::ranges::count_if(graph.nodes,
                                 [](const Node& n) { return n.attributes.boolean("adds_to_dy"); });
  };
  CHECK(sums(after) == 1);
  CHECK(count(before, "add") == 3);
  CHECK(count(after, "add") == 0);
}

TEST_CASE("joined norms give the same losses and gradients, also without copies of sums") {
  const bool norm_after = GENERATE(false, true);
  const Graph before = residual_stream(DType::f64, DType::f64, norm_after);
  const Graph after = joined(before), fewer = remove_copies(after, false);
  CHECK(count(after, "add") == count(before, "add") - (norm_after ? 3 : 2));
  if (!norm_after) CHECK(count(fewer, "identity") == count(after, "identity") - 3);
  GraphRun expected(before);
  for (const Graph& graph : {after, fewer}) {
    GraphRun found(graph);
    for (GraphRun* run : {&expected, &found}) {
      run->fill(1);
      run->set("targets", {0, 1, 2, 3, 4, 5});
      run->step_state().in.inverse_valid = 0.125;
      run->step_state().out.loss_scale = 1;
      run->run(Phase::forward, MicroStep::only);
      run->run(Phase::backward, MicroStep::only);
    }
    for (const char* name : {"metric.loss", "gradient of w", "gradient of b", "gradient of v",
                             "gradient of m", "gradient of n"}) {
      INFO(name);
      const auto a = expected.get(name), b = found.get(name);
      REQUIRE(a.size() == b.size());
      for (size_t i = 0; i < a.size(); ++i)
        CHECK(b[i] == Approx(a[i]).epsilon(1e-12).margin(1e-14));
    }
  }
}

TEST_CASE("a plan of several micro-steps refuses sums among several results") {
  const Graph graph = remove_copies(residual_stream(DType::f64, DType::f64), true);
  CHECK_THROWS_AS(GraphRun(graph, true), Error);
}

}  // namespace
}  // namespace dltrain
