#include <functional>

#include "base/error.h"
#include "catch.h"
#include "examples.h"
#include "graph/slots.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

// Returns the error of verify_graph after `change` to a valid training step.
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
             Contains("producer of output"));
  CHECK_THAT(complaint([](Graph& g) {
               Node& update = node_named(g, "sgd_update");
               g.value(update.outputs[0]).storage_of = update.inputs[2];
             }),
             Contains("storage of output"));
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
               const ValueId gradient = g.find("gradient of w1");
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
             Contains("reads the sum gradient of w1 before it is complete"));
}

TEST_CASE("what adds to a sum follows it, and nobody reads the sum between") {
  const auto tied = [](const std::function<void(Graph&, ValueId begun)>& change) {
    return complaint([&](Graph& g) {
      g = Graph{};
      GraphBuilder b(g);
      const ValueId x = b.add_value("x", {Shape{2, 3}, DType::f32}, Role::input);
      const ValueId w = b.add_value("w", {Shape{3, 3}, DType::f32}, Role::parameter);
      finish_step(g, emit_loss(b, b.emit1("matmul", {b.emit1("matmul", {x, w}), w})));
      const ValueId begun = g.find("gradient of w");
      const ValueId whole = g.whole_sums()[static_cast<size_t>(begun)];
      REQUIRE(whole != begun);
      verify_graph(g);
      change(g, begun);
    });
  };
  CHECK_THAT(
      tied([](Graph& g, ValueId begun) { node_named(g, "gradient_norm").inputs[1] = begun; }),
      Contains("reads gradient of w after it was overwritten"));
  CHECK_THAT(tied([](Graph& g, ValueId begun) { g.value(begun).role = Role::statistic; }),
             Contains("cannot continue the sum gradient of w"));
}

TEST_CASE("names of state are unique and not empty") {
  CHECK_THAT(complaint([](Graph& g) { g.value(g.find("b0")).name = "b1"; }),
             Contains("two values are named b1"));
  CHECK_THAT(complaint([](Graph& g) { g.value(g.find("b0")).name = ""; }),
             Contains("state without a name"));
}

// A step of one of two ranks: the sum of a gradient, which the update waits for, and a parameter
// that is gathered for the forward; slots 0 and 1.
Graph step_of_ranks() {
  Graph g;
  GraphBuilder b(g);
  const TensorSpec spec{Shape{2, 3}, DType::f32};
  const ValueId x = b.add_value("x", spec, Role::input);
  const ValueId part = b.add_value("part", {Shape{3}, DType::f32}, Role::parameter);
  const Attributes gather{{"slot", int64_t{1}}, {"shapes", std::vector<int64_t>{2, 2, 3}}};
  auto whole = b.emit("all_gather_begin", {part}, gather);
  const ValueId between = b.emit1("exp", {x});
  whole = b.emit("all_gather_end", whole, {{"slot", int64_t{1}}});
  const ValueId y = b.emit1("mul", {whole[0], between});
  b.set_phase(Phase::backward);
  const ValueId sum = b.accumulate(b.emit1("mul", {y, x}), "gradient", Role::gradient);
  const ValueId begun = b.emit1("all_reduce_begin", {sum}, {{"slot", int64_t{0}}});
  g.nodes.back().once_per_step = true;
  b.emit1("exp", {y});
  b.set_phase(Phase::update);
  const ValueId reduced = b.emit1("all_reduce_end", {begun}, {{"slot", int64_t{0}}});
  b.emit1("gradient_norm", {b.step_state(), reduced});
  return g;
}

// Returns the error of verify_graph after `change`.
std::string complaint_of_ranks(const std::function<void(Graph&)>& change) {
  return complaint([&](Graph& g) {
    g = step_of_ranks();
    verify_graph(g);
    change(g);
    g.update_producers();
  });
}

void remove(Graph& graph, std::string_view op) {
  std::erase_if(graph.nodes, [&](const Node& node) { return node.op->name == op; });
}

TEST_CASE("messages are called after the tensors that are known outside") {
  Graph g = step_of_ranks();
  const auto subject = [&](const char* op) { return subject_of(g, node_named(g, op)); };
  CHECK(subject("all_reduce_begin") == "gradient");
  CHECK(subject("all_gather_begin").empty());  // what comes out has no name here
  g.value(node_named(g, "all_gather_end").outputs[0]).name = "layers.0.weight";
  CHECK(subject("all_gather_begin") == "layers.0.weight");
  Node& gather = node_named(g, "all_gather_begin");
  GraphBuilder b(g);
  for (const char* name : {"layers.1.weight", "layers.1.bias", "layers.2.weight"}) {
    gather.inputs.push_back(b.add_value(name, {Shape{2}, DType::f32}, Role::parameter));
  }
  CHECK(subject("all_gather_begin") == "layers.1.weight and 2 more");
  const Mesh mesh({{"pipeline", 1}, {"replica", 2}, {"shard", 1}, {"tensor", 2}});
  CHECK(subject_of(g, gather, mesh) == "layers.1.weight and 2 more, axis data, tensor");
  gather.attributes.set(kOver, std::string("tensor"));
  CHECK(subject_of(g, gather, mesh) == "layers.1.weight and 2 more, axis tensor");
  CHECK_FALSE(begins_slot(node_named(g, "all_reduce_end")));
}

TEST_CASE("what is begun is ended once, by its own end, as often, among the same ranks") {
  CHECK(complaint_of_ranks([](Graph&) {}) == "");
  CHECK_THAT(complaint_of_ranks([](Graph& g) {
               Node& reader = node_named(g, "gradient_norm");
               reader.inputs[1] = node_named(g, "all_reduce_end").inputs[0];
               remove(g, "all_reduce_end");
             }),
             Contains("all_reduce_begin ()") && Contains("slot 0 has no end"));
  CHECK_THAT(complaint_of_ranks([](Graph& g) {
               node_named(g, "all_reduce_end").attributes.set("slot", int64_t{2});
             }),
             Contains("ends slot 2, which has not begun"));
  CHECK_THAT(complaint_of_ranks([](Graph& g) {
               node_named(g, "all_reduce_begin").attributes.set("slot", int64_t{1});
             }),
             Contains("begins slot 1 again"));
  CHECK_THAT(complaint_of_ranks(
                 [](Graph& g) { node_named(g, "all_reduce_end").attributes.erase("slot"); }),
             Contains("has no slot"));
  CHECK_THAT(complaint_of_ranks([](Graph& g) {
               node_named(g, "all_reduce_end").attributes.set("over", std::string("shard"));
             }),
             Contains("not the group of ranks of"));
  CHECK_THAT(complaint_of_ranks([](Graph& g) {
               Node& end = node_named(g, "all_gather_end");
               end.op = find_op("all_reduce_end");
             }),
             Contains("all_reduce_end ()") && Contains("ends node 0 all_gather_begin"));
  // The reduction would begin in every micro-step, and the update wait for one of them.
  CHECK_THAT(
      complaint_of_ranks([](Graph& g) { node_named(g, "all_gather_begin").once_per_step = true; }),
      Contains("does not run as often as"));
}

TEST_CASE("what is on its way is read by its end alone, and its source lasts until then") {
  CHECK_THAT(complaint_of_ranks([](Graph& g) {
               node_named(g, "exp").inputs[0] = node_named(g, "all_gather_begin").outputs[0];
             }),
             Contains("node 1 exp ()") && Contains("of slot 1 before its end"));
  CHECK_THAT(complaint_of_ranks([](Graph& g) {
               GraphBuilder b(g);
               Node& end = node_named(g, "all_gather_end");
               end.inputs[0] = b.add_value("z", {Shape{2, 3}, DType::f32}, Role::input);
               g.value(end.outputs[0]).storage_of = end.inputs[0];
             }),
             Contains("does not read the outputs of node 0 all_gather_begin"));
  // A source that is no state, which its memory's next owner would overwrite.
  CHECK_THAT(complaint_of_ranks([](Graph& g) {
               Node begin = node_named(g, "all_gather_begin");
               const auto made = static_cast<ValueId>(g.values.size());
               const Node source{.op = find_op("exp"),
                                 .attributes = {},
                                 .inputs = begin.inputs,
                                 .outputs = {made},
                                 .layer = {}};
               g.values.push_back({.name = "made", .spec = g.value(begin.inputs[0]).spec});
               g.nodes.front().inputs[0] = made;
               g.nodes.insert(g.nodes.begin(), source);
             }),
             Contains("input made does not live until node 3 all_gather_end"));
  CHECK_THAT(
      complaint_of_ranks([](Graph& g) {
        Node begin = node_named(g, "all_gather_begin");
        const auto written = static_cast<ValueId>(g.values.size());
        const ValueId part = begin.inputs[0];
        const Node writer{.op = find_op("all_reduce_begin"),
                          .attributes = {{"slot", int64_t{2}}},
                          .inputs = {part},
                          .outputs = {written},
                          .layer = {}};
        Node end{.op = find_op("all_reduce_end"),
                 .attributes = {{"slot", int64_t{2}}},
                 .inputs = {written},
                 .outputs = {static_cast<ValueId>(written + 1)},
                 .layer = {}};
        g.values.push_back({.name = {}, .spec = g.value(part).spec, .storage_of = part});
        g.values.push_back({.name = {}, .spec = g.value(part).spec, .storage_of = written});
        g.nodes.insert(g.nodes.begin() + 1, {writer, end});
      }),
      Contains("all_reduce_begin ()") && Contains("writes an input of node 0 all_gather_begin"));
}

}  // namespace
}  // namespace dltrain
