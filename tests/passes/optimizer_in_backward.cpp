#include "passes/optimizer_in_backward.h"

#include "catch.h"
#include "graph/builder.h"
#include "graph/reverse.h"

namespace dltrain {
namespace {

// y = (x·Aᵀ)·Bᵀ, whose update is at the end of the step; A and B have gradients of 16 MiB.
Graph example_of_two_layers() {
  Graph graph;
  GraphBuilder b(graph);
  const TensorSpec weight{Shape{2048, 2048}, DType::f32};
  const ValueId x = b.add_value("x", {Shape{8, 2048}, DType::f32}, Role::input);
  const ValueId first = b.add_value("A", weight, Role::parameter);
  const ValueId second = b.add_value("B", weight, Role::parameter);
  const ValueId hidden = b.emit1("matmul", {x, first}, {{"transpose_b", true}});
  const ValueId y = b.emit1("matmul", {hidden, second}, {{"transpose_b", true}});
  const ValueId loss = b.emit1("elementwise_loss", {y, x}, {{"kind", "mse"}});
  const auto gradients = reverse(graph, {loss}, {first, second}, {});
  b.set_phase(Phase::update);
  std::vector<ValueId> inputs{b.step_state()};
  for (const auto& g : gradients) inputs.push_back(g.gradient);
  const ValueId state = b.emit1("gradient_norm", inputs);
  for (const auto& g : gradients) b.emit("sgd_update", {state, g.parameter, g.gradient});
  for (const auto& g : gradients) {
    b.emit("ema_update", {state, graph.newest(g.parameter),
                          b.add_state_of(g.parameter, "ema", weight, Role::ema)});
  }
  return graph;
}

// The ops after the forward, with "|" where the update segment begins.
std::string ops_of(const Graph& graph) {
  std::string out;
  Phase phase = Phase::backward;
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::forward) continue;
    if (node.phase != phase) out += "| ";
    phase = node.phase;
    out.append(node.op->name).append(" ");
  }
  return out;
}

TEST_CASE("each update follows the last reader of its parameter and gradient") {
  CHECK(ops_of(example_of_two_layers()) ==
        "loss_seed elementwise_loss_backward matmul matmul matmul | gradient_norm sgd_update "
        "sgd_update ema_update ema_update ");
  const Graph graph = optimizer_in_backward(example_of_two_layers(), false);
  CHECK(ops_of(graph) ==
        "loss_seed elementwise_loss_backward matmul matmul sum_of_squares running_norm sgd_update "
        "matmul sum_of_squares running_norm sgd_update | ema_update ema_update ");
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::backward) continue;
    CHECK(node.once_per_step == (node.op->name == "sum_of_squares" ||
                                 node.op->name == "running_norm" || node.op->name == "sgd_update"));
  }
}

TEST_CASE("with clipping the norm is kept for the next step") {
  const Graph graph = optimizer_in_backward(example_of_two_layers(), true);
  CHECK(graph.value(graph.find("clip_norm.previous")).role == Role::moment);
  const std::string text = print_graph(graph);
  CHECK(text.find("clip_norm.previous) {clips=true, first=true, last=false}") != std::string::npos);
  CHECK(text.find("{clips=true, first=false, last=true}") != std::string::npos);
}

}  // namespace
}  // namespace dltrain
