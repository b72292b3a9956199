// The parts of stages and the choice of their layers; tests/run/pipeline.cpp trains them.
#include "passes/stage_cut.h"

#include "catch.h"
#include "comm/mesh.h"
#include "graph/builder.h"
#include "graph/examples.h"
#include "graph/reverse.h"
#include "passes/partition.h"
#include "refusal.h"

namespace dltrain {
namespace {

const std::vector<int64_t> kSizes{6, 8, 7, 5};

// A training step with one update node for each parameter, as optimizers emit them.
Graph whole_step() {
  Graph graph = mlp_step(2, kSizes, DType::f32, 0.9);
  const Node packed = graph.nodes.back();
  graph.nodes.pop_back();
  const auto count = static_cast<size_t>(packed.attributes.integer("count"));
  for (size_t i = 0; i < count; ++i) {
    Node node = packed;
    node.attributes = {{"momentum", packed.attributes.number("momentum")}};
    node.inputs = {packed.inputs[0]};
    node.outputs.clear();
    for (size_t k = 1 + i; k < packed.inputs.size(); k += count) {
      node.inputs.push_back(packed.inputs[k]);
    }
    for (size_t k = i; k < packed.outputs.size(); k += count) {
      node.outputs.push_back(packed.outputs[k]);
    }
    graph.nodes.push_back(node);
  }
  graph.update_producers();
  return graph;
}

// The names of state that the stage stores, or that others store.
std::string names(const Graph& graph, Role role, bool here = true) {
  std::string out;
  for (ValueId id : graph.with_role(role)) {
    const GraphValue& value = graph.value(id);
    if (here == (!value.shard || value.shard->is_here)) out += value.name + " ";
  }
  return out;
}

TEST_CASE("a stage has its own layers, parameters and update, and messages in both directions") {
  const Graph first = stage_cut(whole_step(), {.rank = 0, .begins = {"layers.1"}});
  const Graph second = stage_cut(whole_step(), {.rank = 1, .begins = {"layers.1"}});
  CHECK(names(first, Role::parameter) == "w0 b0 ");
  CHECK(names(first, Role::parameter, false) == "w1 b1 w2 b2 ");
  CHECK(names(second, Role::parameter) == "w1 b1 w2 b2 ");
  CHECK(names(second, Role::metric) == "loss correct ");
  CHECK(names(first, Role::metric) == "");
  CHECK(names(first, Role::partial) == "loss correct ");  // received
  for (ValueId id : first.with_role(Role::parameter)) {
    const GraphValue& value = first.value(id);
    CHECK(value.shard->stage == (value.shard->is_here ? 0 : 1));
    CHECK((value.spec.bytes() == 0) == !value.shard->is_here);
  }
  CHECK(ops(first, Phase::forward) == "matmul send_begin ");
  CHECK(ops(first, Phase::backward).starts_with("receive_begin send_end receive_end "));
  CHECK(ops(second, Phase::forward).starts_with("receive_begin receive_end relu matmul "));
  CHECK(ops(second, Phase::backward).ends_with("send_end "));
  CHECK(ops(first, Phase::update) ==
        "receive_begin receive_end receive_begin receive_end gradient_norm sgd_update sgd_update ");
  CHECK(ops(second, Phase::update).starts_with("send_begin send_end send_begin send_end "));
}

TEST_CASE("the gradient norm adds up the stages") {
  Graph graph = stage_cut(whole_step(), {.rank = 0, .begins = {"layers.1"}});
  reduce_update_sums(graph, Mesh({{mesh_axes::kPipeline, 2}}));
  CHECK(ops(graph, Phase::update)
            .find("sum_of_squares pad all_reduce_begin all_reduce_end "
                  "gradient_norm_of") != std::string::npos);
}

// y = f2(f1(f0(x)) + f0(x)): the output of the first layer is read by the third.
Graph with_a_skip() {
  Graph graph;
  GraphBuilder builder(graph);
  ValueId x = builder.add_value("x", {Shape{4}, DType::f64}, Role::input);
  ValueId skipped = kNoValue;
  std::vector<ValueId> parameters;
  for (int i = 0; i < 3; ++i) {
    builder.set_layer(fmt::format("layers.{}", i));
    parameters.push_back(
        builder.add_value(fmt::format("w{}", i), {Shape{4}, DType::f64}, Role::parameter));
    if (i == 2) x = builder.emit1("add", {x, skipped});
    x = builder.emit1("mul", {x, parameters.back()});
    if (i == 0) skipped = x;
  }
  const ValueId loss =
      builder.emit1("reduce", {x}, {{"kind", "sum"}, {"axes", std::vector<int64_t>{0}}});
  reverse(graph, {loss}, parameters);
  return graph;
}

TEST_CASE("values for a stage further away pass through those between") {
  const auto part = [](int stage) {
    return stage_cut(with_a_skip(), {.rank = stage, .begins = {"layers.1", "layers.2"}});
  };
  const auto count = [](const Graph& graph, Phase phase, const std::string& op) {
    return std::ranges::count_if(
        graph.nodes, [&](const Node& node) { return node.phase == phase && node.op->name == op; });
  };
  for (Phase phase : {Phase::forward, Phase::backward}) {
    const bool forward = phase == Phase::forward;
    const Graph near = part(forward ? 0 : 2), middle = part(1), far = part(forward ? 2 : 0);
    INFO(phase_name(phase));
    CHECK(count(near, phase, "receive_begin") == 0);
    CHECK(count(near, phase, "send_begin") == count(middle, phase, "receive_begin"));
    CHECK(count(middle, phase, "send_begin") == count(far, phase, "receive_begin"));
    CHECK(count(far, phase, "receive_begin") == (forward ? 2 : 1));  // gradients are added before
    CHECK(count(far, phase, "send_begin") == 0);
  }
}

TEST_CASE("stages are chosen such that the slowest takes the least time") {
  Graph graph;
  GraphBuilder builder(graph);
  ValueId x = builder.add_value("x", {Shape{64, 256}, DType::f32}, Role::input);
  int layer = 0;
  for (int64_t outputs : {256, 256, 256, 256, 1024, 256}) {  // the last two: twice four layers
    builder.set_layer(fmt::format("layers.{}", layer));
    const ValueId w =
        builder.add_value(fmt::format("w{}", layer),
                          {Shape{builder.spec(x).shape[1], outputs}, DType::f32}, Role::parameter);
    x = builder.emit1("matmul", {x, w});
    builder.set_layer(fmt::format("layers.{}", layer + 1));
    x = builder.emit1("relu", {x});
    layer += 2;
  }
  using Paths = std::vector<std::string>;
  CHECK(choose_stages(graph, 2) == Paths{"layers.8"});
  CHECK(choose_stages(graph, 6) ==
        Paths{"layers.2", "layers.4", "layers.6", "layers.8", "layers.10"});
  CHECK_THAT(refusal_of([&] { choose_stages(graph, 7); }, ExitCode::usage),
             Catch::Matchers::Contains("take at most 6"));
  CHECK(find_stages(graph, {"layers.3", "layers.8"}) == Paths{"layers.4", "layers.8"});
  const auto refused = [&](const Paths& begins, const std::string& why) {
    CHECK_THAT(
        refusal_of([&] { find_stages(graph, begins); }, ExitCode::usage),
        Catch::Matchers::Contains("no stage can begin with '" + begins.back() + "': " + why));
  };
  refused({"layers.8", "layers.3"},
          "it comes before 'layers.8', with which the stage before begins; name the layers in the "
          "order of the model");
  refused({"layers.2", "layers.2"}, "it is named twice");
  refused(
      {"layers.4", "layers.3"},
      "its first layer with parameters, 'layers.4', is that with which the stage before begins");
  refused({"layers.0"}, "it is the first layer");
  refused({"layers.11"}, "no layer from there on has parameters");
  refused({"foo"}, "the model has no such layer; its layers are, in order: layers.0, ");
}

}  // namespace
}  // namespace dltrain
