// The pass that moves weight gradients behind the backward; tests/run/pipeline.cpp trains such
// stages.
#include "passes/split_backward.h"

#include "catch.h"
#include "graph/examples.h"
#include "passes/stage_cut.h"

namespace dltrain {
namespace {

Graph stage(int rank) {
  Graph graph = mlp_step(2, {6, 8, 7, 5}, DType::f32, 0.9);
  // Without the update, which has all parameters in one node.
  std::erase_if(graph.nodes, [](const Node& node) { return node.phase == Phase::update; });
  graph.update_producers();
  return stage_cut(std::move(graph), {.rank = rank, .begins = {"layers.1"}});
}

TEST_CASE("what no stage before waits for is moved behind the backward") {
  const Graph whole = stage(1), split = split_backward(stage(1));
  const std::string backward = ops(split, Phase::backward);
  const std::string weights = ops(split, Phase::weights);
  // The gradient of the input goes through both layers to the message; those of weights and
  // biases, a product and a sum for each layer, do not.
  CHECK(backward.find("send_begin") != std::string::npos);
  CHECK(backward.find("receive_end") == std::string::npos);  // the last stage
  CHECK(weights.find("send_begin") == std::string::npos);
  CHECK(weights.ends_with("send_end "));  // of the gradient
  CHECK(std::count(weights.begin(), weights.end(), ' ') == 5);
  CHECK(ops(whole, Phase::backward).size() == backward.size() + weights.size());
  CHECK(ops(split, Phase::forward) == ops(whole, Phase::forward));
  verify_graph(split);
  CHECK(ops(split_backward(split), Phase::weights) == weights);
}

TEST_CASE("the first stage, which sends no gradients, stays whole") {
  const Graph whole = stage(0), split = split_backward(stage(0));
  CHECK(ops(split, Phase::weights) == "");
  CHECK(ops(split, Phase::backward) == ops(whole, Phase::backward));
}

}  // namespace
}  // namespace dltrain
