#include "passes/chunk_loss.h"

#include "catch.h"
#include "graph/builder.h"
#include "passes/dead_code.h"
#include "run_graph.h"

namespace dltrain {
namespace {

constexpr int64_t kChunkLossSamples = 5, kTokens = 7, kWidth = 6, kClasses = 9;
constexpr size_t kRowBytes = kClasses * sizeof(double);

// Tokens through a linear layer and a head with bias; with `tied` the head's weight is also what
// the tokens go through first. The targets of the second token are ignored.
struct ChunkLossExample {
  explicit ChunkLossExample(bool tied = false, double smoothing = 0.1) {
    x = b.add_value("x", {Shape{kChunkLossSamples, kTokens, tied ? kClasses : kWidth}, DType::f64},
                    Role::input);
    targets = b.add_value("targets", {Shape{kChunkLossSamples, kTokens}, DType::i32}, Role::input);
    w = b.add_value("w", {Shape{kClasses, kWidth}, DType::f64}, Role::parameter);
    bias = b.add_value("bias", {Shape{kClasses}, DType::f64}, Role::parameter);
    const ValueId hidden =
        b.emit1("tanh", {tied ? b.emit1("matmul", {x, w}) : b.emit1("silu", {x})});
    const ValueId y = b.emit1("matmul", {hidden, w, bias}, {{"transpose_b", true}});
    const auto loss = b.emit("softmax_cross_entropy", {y, targets},
                             {{"ignore_index", int64_t{-100}},
                              {"label_smoothing", smoothing},
                              {"z_loss", 0.01},
                              {"row_losses", true}});
    b.accumulate(b.emit1("identity", {loss[0]}), "metric.loss", Role::metric);
    b.accumulate(b.emit1("identity", {loss[2]}), "metric.correct", Role::metric);
    const ValueId sources =
        b.add_value("sources", {Shape{kChunkLossSamples, kTokens}, DType::i32}, Role::input);
    b.accumulate(
        b.emit1("source_sums", {loss[3], targets, sources}, {{"sources", kChunkLossSamples}}),
        "metric.sources", Role::metric);
    gradients = reverse(graph, {loss[0]}, {w, bias});
  }

  Graph chunked(size_t rows, int64_t grain = 1) {
    Graph out = graph;
    std::vector<ParameterGradient> result = gradients;
    chunk_loss(out, result,
               {.most_bytes = rows * kRowBytes, .column_grain = grain, .least_padded = 0});
    return eliminate_dead_code(std::move(out));
  }

  Graph graph;
  GraphBuilder b{graph};
  ValueId x, targets, w, bias;
  std::vector<ParameterGradient> gradients;
};

void run(GraphRun& run, bool several) {
  run.fill(3);
  run.step_state().in.inverse_valid = 0.125;
  run.step_state().out.loss_scale = 1;
  std::vector<double> targets(kChunkLossSamples * kTokens), sources(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    targets[i] = static_cast<double>(i * 5 % kClasses);
    sources[i] = static_cast<double>(i * 3 % kChunkLossSamples);
  }
  targets[1] = -100;
  for (MicroStep step :
       several ? std::vector{MicroStep::first, MicroStep::last} : std::vector{MicroStep::only}) {
    run.set("targets", targets);
    run.set("sources", sources);
    run.run(Phase::forward, step);
    run.run(Phase::backward, step);
    run.fill(3);
  }
}

TEST_CASE("a loss in chunks gives the same gradients and sums") {
  const bool tied = GENERATE(false, true), several = GENERATE(false, true);
  const size_t rows = GENERATE(size_t{16}, size_t{30}, size_t{1000});
  const int64_t grain = rows > 100 ? 4 : GENERATE(1, 4);  // 9 classes: 3 columns of padding
  ChunkLossExample e(tied);
  const Graph chunked = e.chunked(rows, grain);
  REQUIRE(print_graph(chunked).find("slice") != std::string::npos);
  REQUIRE((print_graph(chunked).find("classes=9") != std::string::npos) == (grain > 1));
  GraphRun whole(eliminate_dead_code(e.graph), several), parts(chunked, several);
  run(whole, several);
  run(parts, several);
  for (const char* name :
       {"metric.loss", "metric.correct", "metric.sources", "gradient of w", "gradient of bias"}) {
    INFO(name);
    const auto expected = whole.get(name), found = parts.get(name);
    REQUIRE(expected.size() == found.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK(found[i] == Approx(expected[i]).epsilon(1e-12).margin(1e-13));
    }
  }
}

TEST_CASE("no more than one chunk of logits is there at a time") {
  ChunkLossExample e;
  const Graph graph = e.chunked(16);
  size_t products = 0;
  for (const Node& node : graph.nodes) {
    CHECK(node.op->name != "softmax_cross_entropy_backward");
    if (node.op->name != "softmax_cross_entropy_gradient") continue;
    ++products;
    CHECK(node.phase == Phase::backward);
    CHECK(graph.value(node.inputs[0]).spec.shape[0] <= 16);
  }
  CHECK(products == 3);
  CHECK(print_graph(eliminate_dead_code(graph)) == print_graph(graph));
}

TEST_CASE("small logits, and losses that more than metrics read, are left whole") {
  ChunkLossExample e;
  const std::string before = print_graph(e.graph);
  chunk_loss(e.graph, e.gradients, {.most_bytes = kChunkLossSamples * kTokens * kRowBytes});
  CHECK(print_graph(e.graph) == before);

  ChunkLossExample other;
  const Node& loss = *std::find_if(other.graph.nodes.begin(), other.graph.nodes.end(),
                                   [](auto& n) { return n.op->name == "softmax_cross_entropy"; });
  other.b.set_phase(Phase::backward);
  other.b.emit1("add", {loss.outputs[0], loss.outputs[0]});
  chunk_loss(other.graph, other.gradients, {.most_bytes = 16 * kRowBytes});
  CHECK(print_graph(other.graph).find("slice") == std::string::npos);
}

TEST_CASE("the last part of a chunked gradient is what the update reads") {
  ChunkLossExample e(true);
  chunk_loss(e.graph, e.gradients, {.most_bytes = 16 * kRowBytes});
  for (const ParameterGradient& g : e.gradients) {
    CHECK(e.graph.whole_sums()[static_cast<size_t>(e.graph.storage(g.gradient))] == g.gradient);
  }
}

}  // namespace
}  // namespace dltrain
