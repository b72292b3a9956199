#include "passes/recompute.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "catch.h"
#include "graph/builder.h"
#include "graph/program.h"
#include "graph/reverse.h"
#include "passes/dead_code.h"
#include "passes/fuse.h"
#include "random_graph.h"
#include "run_graph.h"

namespace dltrain {
namespace {

using Catch::Matchers::Contains;

constexpr Recompute kModes[] = {Recompute::selective, Recompute::full};

double flops_of(const Graph& graph, const Node& node) {
  return 1 + op_cost(*node.op, graph.input_specs(node), graph.output_specs(node), node.attributes)
                 .flops;
}

Recomputed recompute_with(const Graph& graph, double share) {
  return recompute(graph, {.mode = Recompute::automatic, .share = share, .seconds = flops_of});
}

struct Chain {
  Graph graph;
  GraphBuilder b{graph};
  std::vector<ValueId> weights;

  // `layers` times tanh(x·w), each a block if wanted, and the sum of the last.
  Chain(int layers, bool blocks) {
    ValueId x = b.add_value("x", {Shape{64, 16}, DType::f32}, Role::input);
    for (int i = 0; i < layers; ++i) {
      std::optional<GraphBuilder::Block> block;
      if (blocks) block.emplace(b);
      const auto name = fmt::format("w{}", i);
      weights.push_back(b.add_value(name, {Shape{16, 16}, DType::f32}, Role::parameter));
      const ValueId product = b.emit1("matmul", {x, weights.back()});
      x = b.emit1("add", {x, b.emit1("tanh", {b.emit1("sigmoid", {product})})});
    }
    const ValueId sum =
        b.emit1("reduce", {x}, {{"kind", "sum"}, {"axes", std::vector<int64_t>{0, 1}}});
    const ValueId loss = b.emit1("cast", {sum}, {{"dtype", "f64"}});
    reverse(graph, {loss}, weights);
    graph = eliminate_dead_code(std::move(graph));
  }
};

size_t work_bytes(const Graph& graph) {
  return GraphRun(graph).program().work_bytes();
}

TEST_CASE("cheap values that the backward reads are computed again right before it") {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.add_value("x", {Shape{4, 4}, DType::f32}, Role::input);
  const ValueId w = b.add_value("w", {Shape{4, 4}, DType::f32}, Role::parameter);
  const ValueId tanh = b.emit1("tanh", {b.emit1("matmul", {x, w})});
  b.accumulate(b.emit1("identity", {tanh}), "sum", Role::metric);
  b.set_phase(Phase::backward);
  b.accumulate(b.emit1("tanh_backward", {tanh, x}), "g", Role::gradient);
  const Recomputed result = recompute(graph, {.mode = Recompute::selective});
  CHECK(result.nodes == 1);
  CHECK(print_graph(result.graph) ==
        "forward:\n"
        "  %2 = matmul(x, w) : f32[4, 4]\n"
        "  %3 = tanh(%2) : f32[4, 4]\n"
        "  sum = identity(%3) : f32[4, 4]\n"
        "backward:\n"
        "  %6 = tanh(%2) : f32[4, 4]\n"
        "  g = tanh_backward(%6, x) : f32[4, 4]\n");
  CHECK(print_graph(recompute(graph, {}).graph) == print_graph(graph));
}

TEST_CASE("of a block only what leaves it is kept") {
  const Chain chain(3, true);
  const Recomputed result = recompute(chain.graph, {.mode = Recompute::blocks});
  size_t sigmoids = 0;
  for (const Node& node : result.graph.nodes) {
    if (node.phase == Phase::backward && node.op->name == "sigmoid") ++sigmoids;
  }
  CHECK(sigmoids == 3);
  CHECK(result.flops > 0);
  CHECK(work_bytes(result.graph) < work_bytes(chain.graph));
  CHECK_THROWS_WITH(recompute(Chain(2, false).graph, {.mode = Recompute::blocks}),
                    Contains("has none"));
}

TEST_CASE("full cuts a long chain into pieces that take much less memory") {
  const Chain chain(32, false);
  const auto pieces = recomputed_pieces(chain.graph, Recompute::full);
  const int count = 1 + *std::max_element(pieces.begin(), pieces.end());
  CHECK(count > 3);
  CHECK(count < 20);
  CHECK(std::is_sorted(pieces.begin(), pieces.end()));
  const size_t whole = work_bytes(chain.graph);
  CHECK(work_bytes(recompute(chain.graph, {.mode = Recompute::full}).graph) < whole / 2);
}

TEST_CASE("automatic recomputation trades memory for time, and is no worse than the other modes") {
  const Chain chain(32, true);
  const size_t whole = work_bytes(chain.graph);
  double before = -1;
  size_t bytes = 0;
  for (double share : {1.0, 0.8, 0.6, 0.4, 0.2, 0.0}) {
    INFO("share " << share);
    const Recomputed result = recompute_with(chain.graph, share);
    bytes = work_bytes(result.graph);
    CHECK(result.seconds > before);
    CHECK(static_cast<double>(bytes) < (0.15 + share) * static_cast<double>(whole));
    before = result.seconds;
  }
  CHECK(recompute_with(chain.graph, 1).nodes == 0);
  std::vector<std::pair<size_t, double>> trades;  // bytes for seconds
  for (double share = 0; share <= 1; share += 1.0 / 64) {
    const Recomputed result = recompute_with(chain.graph, share);
    trades.emplace_back(work_bytes(result.graph), result.seconds);
  }
  for (Recompute mode : {Recompute::selective, Recompute::blocks, Recompute::full}) {
    const Recomputed other = recompute(chain.graph, {.mode = mode, .seconds = flops_of});
    double fastest = std::numeric_limits<double>::infinity();
    for (const auto& [taken, seconds] : trades) {
      if (taken <= work_bytes(other.graph)) fastest = std::min(fastest, seconds);
    }
    INFO("mode " << static_cast<int>(mode));
    CHECK(fastest <= other.seconds);
  }
  // Nested: less memory than any single level, and nodes that run more than twice.
  CHECK(bytes < work_bytes(recompute(chain.graph, {.mode = Recompute::full}).graph));
  CHECK(recompute_with(chain.graph, 0).nodes > 2 * 3 * 32);
}

TEST_CASE("layers can be kept and recomputed by name") {
  Chain chain(4, false);
  for (size_t i = 0; i < chain.graph.nodes.size(); ++i) {
    Node& node = chain.graph.nodes[i];
    if (node.phase == Phase::forward && node.op->name == "sigmoid") {
      node.layer = fmt::format("layers.{}", i);
    }
  }
  const auto again = [&](const RecomputeOptions& options) {
    int sigmoids = 0;
    for (const Node& node : recompute(chain.graph, options).graph.nodes) {
      sigmoids += node.phase == Phase::backward && node.op->name == "sigmoid" ? 1 : 0;
    }
    return sigmoids;
  };
  const std::vector<std::string> layers{"layers.*"};
  CHECK(again({}) == 0);
  CHECK(again({.again = layers}) == 4);
  CHECK(again({.mode = Recompute::selective}) == 4);
  CHECK(again({.mode = Recompute::selective, .keep = layers}) == 0);
  CHECK(again({.mode = Recompute::automatic, .share = 0, .seconds = flops_of}) > 2);
  CHECK(again({.mode = Recompute::automatic, .keep = layers, .share = 0, .seconds = flops_of}) ==
        0);
}

TEST_CASE("recomputation changes no bit of random training graphs") {
  int again = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    INFO("seed " << seed);
    RandomGraph random(seed, DType::f32);
    Graph graph = random.graph();
    reverse(graph, random.losses(), random.parameters());
    graph = fuse(eliminate_dead_code(std::move(graph)));
    const auto expected = results_of(graph);
    for (Recompute mode : kModes) {
      const Recomputed result = recompute(graph, {.mode = mode});
      again += result.nodes;
      CHECK(results_of(result.graph) == expected);
    }
    for (double share : {0.0, 0.3, 0.7}) {
      const Recomputed result = recompute_with(graph, share);
      again += result.nodes;
      CHECK(results_of(result.graph) == expected);
    }
  }
  CHECK(again > 60);
}

}  // namespace
}  // namespace dltrain
