#include "passes/expert_cut.h"

#include "catch.h"
#include "graph/builder.h"
#include "graph/reverse.h"
#include "passes/partition.h"

namespace dltrain {
namespace {

// Three tokens of width 2 choose 2 of 4 experts, whose products have 5 columns.
struct ExpertExample {
  Graph graph;
  std::vector<EmittedRouter> routers;
  ValueId loss = kNoValue, weight = kNoValue;
};

ExpertExample expert_example() {
  ExpertExample out;
  GraphBuilder b(out.graph);
  const ValueId x = b.add_value("x", {Shape{3, 2}, DType::f32}, Role::input);
  const ValueId logits = b.add_value("logits", {Shape{3, 4}, DType::f32}, Role::input);
  out.weight = b.add_value("w", {Shape{4, 5, 2}, DType::f32}, Role::parameter);
  const auto routed = b.emit("top_k_routing", {b.emit1("softmax", {logits})},
                             {{"k", int64_t{2}}, {"normalize", true}});
  const ValueId tokens = b.emit1("dispatch_tokens", {x, routed[3], routed[2]});
  const ValueId y = b.emit1("tanh", {b.emit1("grouped_matmul", {tokens, out.weight, routed[4]},
                                             {{"transpose_b", true}})});
  const ValueId z = b.emit1("combine_experts", {y, routed[2], routed[3], routed[0]});
  const auto losses = b.emit("router_losses", {logits, routed[4]});
  out.routers.push_back({.info = {.layer = "moe", .experts = 4, .choices = 2},
                         .losses = losses[0],
                         .sums = losses[1]});
  const ValueId sum =
      b.emit1("reduce", {z}, {{"kind", "sum"}, {"axes", std::vector<int64_t>{0, 1}}});
  out.loss = b.emit1("cast", {sum}, {{"dtype", "f64"}});
  return out;
}

ExpertCutOptions over_two(int rank) {
  return {.mesh = Mesh({{"expert", 2}}), .rank = rank};
}

}  // namespace

TEST_CASE("rows go to the ranks of their experts and come back, and so do gradients") {
  ExpertExample example = expert_example();
  expert_cut(example.graph, over_two(1), example.routers);
  reverse(example.graph, {example.loss}, {example.weight});
  CHECK(
      print_graph(example.graph) ==
      "forward:\n"
      "  %3 = softmax(logits) : f32[3, 4]\n"
      "  %4, %5, %6, %7, %8 = top_k_routing(%3) {k=2, normalize=true} : f32[3, 2], i32[3, 2], "
      "i32[3, 2], i32[6], i32[5]\n"
      "  %17, %18, %19, %20, %21 = place_rows(%6, %8) {buffer=6, capacity=0, owners=2} : i32[3, "
      "2], i32[12], i32[2, 2], i32[2], f64[11]\n"
      "  %22 = all_to_all(%19) : i32[2, 2]\n"
      "  %23, %24, %25, %26 = sort_received(%22) {buffer=6} : i32[12], i32[12, 1], i32[3], i32[2]\n"
      "  %27 = dispatch_tokens(x, %18, %17) : f32[12, 2]\n"
      "  %28 = all_to_all(%27, %20, %26) : f32[12, 2]\n"
      "  %29 = dispatch_tokens(%28, %23, %24) : f32[12, 2]\n"
      "  %30 = grouped_matmul(%29, w, %25) {rows=6, transpose_b=true} : f32[12, 5]\n"
      "  %31 = tanh(%30) : f32[12, 5]\n"
      "  %32 = combine_experts(%31, %24, %23) : f32[12, 5]\n"
      "  %33 = all_to_all(%32, %26, %20) : f32[12, 5]\n"
      "  %12 = combine_experts(%33, %17, %18, %4) : f32[3, 5]\n"
      "  %13, %14 = router_losses(logits, %8) : f64[2], f64[7]\n"
      "  %15 = reduce(%12) {axes=[0, 1], kind=sum} : f32[1]\n"
      "  %16 = cast(%15) {dtype=f64} : f64[1]\n"
      "  %34 = concat(%14, %21) {axis=0} : f64[18]\n"
      "backward:\n"
      "  %36 = loss_seed(step_state, %16) : f64[1]\n"
      "  %37 = cast(%36) {dtype=f32} : f32[1]\n"
      "  %38 = reshape(%37) {shape=[1, 1]} : f32[1, 1]\n"
      "  %39 = broadcast(%38) {shape=[3, 5]} : f32[3, 5]\n"
      "  %40 = dispatch_tokens(%39, %18, %17, %4) : f32[12, 5]\n"
      "  %41 = all_to_all(%40, %20, %26) : f32[12, 5]\n"
      "  %42 = dispatch_tokens(%41, %23, %24, -) : f32[12, 5]\n"
      "  %43 = tanh_backward(%31, %42) : f32[12, 5]\n"
      "  gradient of w = grouped_matmul_backward_weight(%43, %29, %25) {experts=2, rows=6} : "
      "f32[2, 5, 2]\n");
  const Shard& shard = *example.graph.value(example.weight).shard;
  CHECK(shard.whole.shape == Shape{4, 5, 2});
  CHECK(shard.cut->axis == std::string(mesh_axes::kExpert));
  CHECK(shard.cut->rank == 1);
}

TEST_CASE("a buffer and a capacity have so many rows") {
  const auto rows = [](double buffer, double capacity, int ranks) {
    ExpertExample example = expert_example();
    ExpertCutOptions options = ranks == 1 ? ExpertCutOptions{} : over_two(0);
    options.buffer = buffer;
    options.capacity = capacity;
    expert_cut(example.graph, options, example.routers);
    for (const Node& node : example.graph.nodes) {
      if (node.op->name == "place_rows") return node.attributes.integer("buffer");
    }
    return int64_t{-1};
  };
  CHECK(rows(0, 0, 1) == -1);   // nothing changes
  CHECK(rows(0, 0, 2) == 6);    // 3 tokens with 2 choices
  CHECK(rows(1, 0, 2) == 3);    // the average
  CHECK(rows(1.5, 0, 2) == 5);  // rounded up
  CHECK(rows(9, 0, 2) == 6);
  CHECK(rows(0, 1, 1) == 6);    // 2 of each of 4 experts are more than all
  CHECK(rows(0, 0.5, 1) == 4);  // 1 of each
  CHECK(rows(0, 0.5, 2) == 2);
}

}  // namespace dltrain
