// What a stage of a pipeline computes later; tests/run/pipeline.cpp trains such stages.
#include "passes/split_backward.h"

#include "catch.h"
#include "graph/examples.h"
#include "passes/stage_cut.h"

namespace dltrain {
namespace {

std::string ops_of_phase(const Graph& graph, Phase phase) {
  std::string out;
  for (const Node& node : graph.nodes) {
    if (node.phase == phase) out += std::string(node.op->name) + " ";
  }
  return out;
}

Graph stage(int rank) {
  Graph graph = mlp_step(2, {6, 8, 7, 5}, DType::f32, 0.9);
  // Without the update, which has all parameters in one node.
  std::erase_if(graph.nodes, [](const Node& node) { return node.phase == Phase::update; });
  graph.update_producers();
  return stage_cut(std::move(graph), {.rank = rank, .begins = {"layers.1"}});
}

TEST_CASE("what no stage before waits for is moved behind the backward") {
  const Graph whole = stage(1), split = split_backward(stage(1));
  const std::string backward = ops_of_phase(split, Phase::backward);
  const std::string weights = ops_of_phase(split, Phase::weights);
  // The gradient of the input goes through both layers to the message; those of weights and
  // biases, a product and a sum for each layer, do not.
  CHECK(backward.find("send_begin") != std::string::npos);
  CHECK(backward.find("receive_end") == std::string::npos);  // the last stage
  CHECK(weights.find("send_begin") == std::string::npos);
  CHECK(weights.ends_with("send_end "));  // of the gradient
  CHECK(std::count(weights.begin(), weights.end(), ' ') == 5);
  CHECK(ops_of_phase(whole, Phase::backward).size() == backward.size() + weights.size());
  CHECK(ops_of_phase(split, Phase::forward) == ops_of_phase(whole, Phase::forward));
  verify_graph(split);
  CHECK(ops_of_phase(split_backward(split), Phase::weights) == weights);
}

TEST_CASE("the first stage, which sends no gradients, stays whole") {
  const Graph whole = stage(0), split = split_backward(stage(0));
  CHECK(ops_of_phase(split, Phase::weights) == "");
  CHECK(ops_of_phase(split, Phase::backward) == ops_of_phase(whole, Phase::backward));
}

}  // namespace
}  // namespace dltrain
