#include <functional>

#include "base/error.h"
#include "catch.h"
#include "examples.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

// What verify_graph says after `change` has been made to a sound training step.
std::string complaint(const std::function<void(Graph&)>& change) {
  Graph graph = mlp_step(4, {3, 5, 2});
  verify_graph(graph);
  change(graph);
  try {
    verify_graph(graph);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::internal);
    return error.what();
  }
  return "";
}

Node& node_named(Graph& graph, std::string_view op) {
  for (Node& node : graph.nodes) {
    if (node.op->name == op) return node;
  }
  FAIL("no node " << op);
  return graph.nodes.front();
}

TEST_CASE("a sound graph is accepted") {
  CHECK(complaint([](Graph&) {}) == "");
  verify_graph(Graph{});
}

TEST_CASE("reads of what is not there are refused") {
  CHECK_THAT(complaint([](Graph& g) { g.nodes[0].inputs[0] = 1000; }), Contains("no value 1000"));
  CHECK_THAT(complaint([](Graph& g) { g.nodes[0].inputs[0] = -7; }), Contains("no value -7"));
  CHECK_THAT(complaint([](Graph& g) { g.nodes[0].outputs[0] = 1000; }), Contains("no value 1000"));
  CHECK_THAT(complaint([](Graph& g) {
               std::swap(g.nodes[0], g.nodes[1]);
               g.update_producers();
             }),
             Contains("too early"));
  // A pass that removed a node but not its reader, with and without new producers.
  CHECK_THAT(complaint([](Graph& g) {
               g.nodes.erase(g.nodes.begin());
               g.update_producers();
             }),
             Contains("which no node produces"));
  CHECK_THAT(complaint([](Graph& g) { g.nodes.erase(g.nodes.begin()); }), Contains("node 0 relu"));
}

TEST_CASE("outputs that differ from the rules of the op are refused") {
  CHECK_THAT(complaint([](Graph& g) { g.value(g.nodes[0].outputs[0]).spec.shape[0] = 3; }),
             Contains("shape rule"));
  CHECK_THAT(complaint([](Graph& g) { g.value(g.nodes[0].outputs[0]).spec.dtype = DType::f64; }),
             Contains("shape rule"));
  CHECK_THAT(complaint([](Graph& g) { g.value(g.nodes[1].outputs[0]).producer = 0; }),
             Contains("producer of output 0"));
  CHECK_THAT(complaint([](Graph& g) {
               Node& update = node_named(g, "sgd_update");
               g.value(update.outputs[0]).storage_of = update.inputs[2];
             }),
             Contains("storage of output 0"));
}

TEST_CASE("phases out of order are refused") {
  CHECK_THAT(complaint([](Graph& g) { g.nodes[0].phase = Phase::backward; }),
             Contains("phases out of order"));
}

TEST_CASE("a read of state after it was overwritten is refused, under whatever name") {
  CHECK_THAT(complaint([](Graph& g) {
               GraphBuilder b(g);
               b.set_phase(Phase::update);
               b.emit1("exp", {g.find("w0")});
             }),
             Contains("reads w0 after it was overwritten"));
  CHECK_THAT(complaint([](Graph& g) {
               GraphBuilder b(g);
               b.set_phase(Phase::update);
               b.emit1("reshape", {g.find("w0")}, {{"shape", std::vector<int64_t>{15}}});
             }),
             Contains("reads w0 after it was overwritten"));
  // A view taken before the write still shows the memory after it.
  CHECK_THAT(complaint([](Graph& g) {
               GraphBuilder b(g);
               const Node update = g.nodes.back();
               g.nodes.pop_back();
               b.set_phase(Phase::update);
               const ValueId view =
                   b.emit1("reshape", {g.find("w0")}, {{"shape", std::vector<int64_t>{15}}});
               g.nodes.push_back(update);
               b.emit1("exp", {view});
               g.update_producers();
             }),
             Contains("after it was overwritten"));
  CHECK_THAT(complaint([](Graph& g) {
               Node& update = node_named(g, "sgd_update");
               update.inputs[2] = update.inputs[1];
               update.inputs[6] = update.inputs[5];
               for (size_t i : {0u, 1u}) {
                 g.value(update.outputs[i]).storage_of = update.inputs[1];
                 g.value(update.outputs[i]).spec = g.value(update.inputs[1]).spec;
               }
             }),
             Contains("twice"));
}

TEST_CASE("sums over micro-steps are read only when they are complete") {
  CHECK_THAT(complaint([](Graph& g) {
               const ValueId gradient = g.find("gradient.w1");
               Node reader{.op = find_op("exp"),
                           .attributes = {},
                           .inputs = {gradient},
                           .outputs = {static_cast<ValueId>(g.values.size())},
                           .layer = {},
                           .phase = Phase::backward};
               g.values.push_back({.name = {}, .spec = g.value(gradient).spec});
               const auto at = g.nodes.begin() + g.value(gradient).producer + 1;
               g.nodes.insert(at, reader);
               g.update_producers();
             }),
             Contains("reads the sum gradient.w1 before it is complete"));
  CHECK_THAT(complaint([](Graph& g) {
               Node& loss = node_named(g, "softmax_cross_entropy");
               g.value(loss.outputs[2]).role = Role::metric;
               g.value(loss.outputs[2]).name = "right";
             }),
             Contains("an accumulating value among several outputs"));
}

TEST_CASE("what adds to a sum follows it, and nobody reads the sum between") {
  const auto tied = [](const std::function<void(Graph&, ValueId begun)>& change) {
    return complaint([&](Graph& g) {
      g = Graph{};
      GraphBuilder b(g);
      const ValueId x = b.add_value("x", {Shape{2, 3}, DType::f32}, Role::input);
      const ValueId w = b.add_value("w", {Shape{3, 3}, DType::f32}, Role::parameter);
      finish_step(g, emit_loss(b, b.emit1("matmul", {b.emit1("matmul", {x, w}), w})));
      const ValueId begun = g.find("gradient.w");
      const ValueId whole = g.whole_sum(begun);
      REQUIRE(whole != begun);
      verify_graph(g);
      change(g, begun);
    });
  };
  CHECK_THAT(
      tied([](Graph& g, ValueId begun) { node_named(g, "gradient_norm").inputs[1] = begun; }),
      Contains("reads gradient.w after it was overwritten"));
  CHECK_THAT(tied([](Graph& g, ValueId begun) { g.value(begun).role = Role::statistic; }),
             Contains("adds to gradient.w, which it does not fit"));
}

TEST_CASE("names of state are unique and not empty") {
  CHECK_THAT(complaint([](Graph& g) { g.value(g.find("b0")).name = "b1"; }),
             Contains("two values are named b1"));
  CHECK_THAT(complaint([](Graph& g) { g.value(g.find("b0")).name = ""; }),
             Contains("state without a name"));
}

}  // namespace
}  // namespace dltrain
