#include "passes/context_cut.h"

#include "catch.h"
#include "graph/builder.h"
#include "graph/reverse.h"
#include "passes/dead_code.h"
#include "passes/fuse.h"
#include "passes/recompute.h"

namespace dltrain {
namespace {

// One head of causal attention over 8 tokens, with learned positions and a mean over the text that
// every rank computes.
std::string with_tokens_cut(int rank, int ranks, bool lowered) {
  Graph graph;
  GraphBuilder b(graph);
  std::vector<ValueId> parameters;
  const auto parameter = [&](const char* name, Shape shape) {
    parameters.push_back(b.add_value(name, {shape, DType::f32}, Role::parameter));
    return parameters.back();
  };
  const ValueId ids = b.add_value("ids", {Shape{2, 8}, DType::i32}, Role::input);
  ValueId targets = b.add_value("targets", {Shape{2, 8}, DType::i32}, Role::input);
  b.set_layer("embed");
  const ValueId rows = b.emit1("embedding", {ids, parameter("table", {5, 6})});
  const ValueId x = b.emit1("add", {rows, parameter("positions", {1, 8, 6})});
  b.set_layer("attention");
  const ValueId y = b.emit1("attention", {x}, {{"heads", int64_t{1}}, {"causal", true}});
  b.set_layer("mean");
  const ValueId mean =
      b.emit1("reduce", {y}, {{"kind", "mean"}, {"axes", std::vector<int64_t>{1}}});
  const ValueId means = b.emit1("reshape", {mean}, {{"shape", std::vector<int64_t>{2, 1, 2}}});
  b.set_layer("head");
  const ValueId logits = b.emit1("add", {y, means});
  ValueId loss = b.emit("softmax_cross_entropy", {logits, targets})[0];
  const ContextOptions options{.mesh = Mesh({{"context", ranks}}), .rank = rank};
  ValueId *const sums[]{&loss}, *const of_rows[]{&targets};
  const ContextCutResult result = cut_context(graph, options, sums, logits, of_rows);
  CHECK(result.gathered == std::vector<std::string>{"mean: reduce"});
  CHECK_FALSE(result.whole_output);
  CHECK(graph.value(targets).spec.shape == Shape{2, 8 / ranks});
  reverse(graph, {loss}, parameters);
  if (lowered) lower_context(graph, options);
  return print_graph(graph);
}

// Returns the ops of a transformer on a rank, but for those of attention, after recomputation.
std::vector<std::string> ops_with_recomputation(int rank, int ranks, bool ring, bool packed,
                                                RecomputeOptions recomputation) {
  Graph graph;
  GraphBuilder b(graph);
  std::vector<ValueId> parameters;
  const auto product = [&](ValueId x, int64_t in, int64_t out) {
    parameters.push_back(b.add_value(fmt::format("w{}", parameters.size()),
                                     {Shape{in, out}, DType::f32}, Role::parameter));
    return b.emit1("matmul", {x, parameters.back()});
  };
  const ValueId ids = b.add_value("ids", {Shape{2, 24}, DType::i32}, Role::input);
  ValueId targets = b.add_value("targets", {Shape{2, 24}, DType::i32}, Role::input);
  parameters = {b.add_value("table", {Shape{6, 6}, DType::f32}, Role::parameter)};
  ValueId x = b.emit1("embedding", {ids, parameters[0]});
  for (int layer = 0; layer < 6; ++layer) {
    b.set_layer(fmt::format("before {}", layer));
    const ValueId normal = b.emit1("tanh", {x});
    std::vector<ValueId> operands{product(normal, 6, 18)};
    if (!packed) {
      operands.clear();
      for (int i = 0; i < 3; ++i) {
        operands.push_back(b.emit1("reshape", {b.emit1("sigmoid", {product(normal, 6, 6)})},
                                   {{"shape", std::vector<int64_t>{2, 24, 2, 3}}}));
      }
    }
    b.set_layer("attention");
    Attributes attributes{{"causal", true}};
    if (packed) attributes.set("heads", int64_t{2});
    const ValueId y = b.emit1("attention", operands, attributes);
    b.set_layer(fmt::format("after {}", layer));
    const ValueId flat = b.emit1("reshape", {y}, {{"shape", std::vector<int64_t>{2, 24, 6}}});
    x = b.emit1("add", {x, b.emit1("tanh", {product(b.emit1("sigmoid", {flat}), 6, 6)})});
  }
  ValueId loss = b.emit("softmax_cross_entropy", {x, targets})[0];
  const ContextOptions options{.mesh = Mesh({{"context", ranks}}), .rank = rank, .ring = ring};
  ValueId *const sums[]{&loss}, *const of_rows[]{&targets};
  cut_context(graph, options, sums, x, of_rows);
  reverse(graph, {loss}, parameters);
  lower_context(graph, options);
  graph = fuse(eliminate_dead_code(std::move(graph)), {});
  recomputation.seconds = [](const Graph& g, const Node& n) {
    return 1 + op_cost(*n.op, g.input_specs(n), g.output_specs(n), n.attributes).flops;
  };
  std::vector<std::string> out;
  for (const Node& node : recompute(std::move(graph), recomputation).graph.nodes) {
    if (node.layer != "attention") out.push_back(fmt::format("{}: {}", node.layer, node.op->name));
  }
  return out;
}

}  // namespace

TEST_CASE("ranks with different tokens recompute the same") {
  const bool ring = GENERATE(false, true), packed = GENERATE(false, true);
  const int ranks = GENERATE(2, 3);
  CAPTURE(ring, packed, ranks);
  std::vector<RecomputeOptions> choices{{.mode = Recompute::full}, {.mode = Recompute::selective}};
  for (double share = 0; share <= 1; share += 0.05) {
    choices.push_back({.mode = Recompute::automatic, .share = share});
  }
  for (const RecomputeOptions& choice : choices) {
    const auto first = ops_with_recomputation(0, ranks, ring, packed, choice);
    for (int rank = 1; rank < ranks; ++rank) {
      CHECK(ops_with_recomputation(rank, ranks, ring, packed, choice) == first);
    }
  }
}

TEST_CASE("tokens are cut where ids are read, and what mixes them is gathered") {
  CHECK(with_tokens_cut(1, 2, false) ==
        "forward:\n"
        "  %14 = slice(ids) {after=[0, 4], before=[0, 2]} : i32[2, 2]  # embed\n"
        "  %15 = slice(ids) {after=[0, 2], before=[0, 4]} : i32[2, 2]  # embed\n"
        "  %16 = concat(%14, %15) {axis=1} : i32[2, 4]  # embed\n"
        "  %3 = embedding(%16, table) : f32[2, 4, 6]  # embed\n"
        "  %17 = slice(positions) {after=[0, 4, 0], before=[0, 2, 0]} : f32[1, 2, 6]  # "
        "embed\n"
        "  %18 = slice(positions) {after=[0, 2, 0], before=[0, 4, 0]} : f32[1, 2, 6]  # "
        "embed\n"
        "  %19 = concat(%17, %18) {axis=1} : f32[1, 4, 6]  # embed\n"
        "  %5 = add(%3, %19) : f32[2, 4, 6]  # embed\n"
        "  %6, %7 = attention(%5) {balanced=true, causal=true, heads=1, rank=1, ranks=2} : "
        "f32[2, 4, 2], f32[2, 1, 4]  # attention\n"
        "  %20 = gather_tokens(%6) {axis=1, balanced=true, rank=1, ranks=2} : f32[2, 8, 2] "
        " # mean\n"
        "  %8 = reduce(%20) {axes=[1], kind=mean} : f32[2, 2]  # mean\n"
        "  %9 = reshape(%8) {shape=[2, 1, 2]} : f32[2, 1, 2]  # mean\n"
        "  %10 = add(%6, %9) : f32[2, 4, 2]  # head\n"
        "  %21 = slice(targets) {after=[0, 4], before=[0, 2]} : i32[2, 2]  # head\n"
        "  %22 = slice(targets) {after=[0, 2], before=[0, 4]} : i32[2, 2]  # head\n"
        "  %23 = concat(%21, %22) {axis=1} : i32[2, 4]  # head\n"
        "  %11, %12, %13 = softmax_cross_entropy(%10, %23) : f64[1], f32[2, 4], f64[1]  # "
        "head\n"
        "backward:\n"
        "  %25 = loss_seed(step_state, %11) : f64[1]\n"
        "  %26 = softmax_cross_entropy_backward(%10, %23, %12, %25) : f32[2, 4, 2]  # "
        "head\n"
        "  %27 = reduce(%26) {axes=[1], kind=sum} : f32[2, 2]  # head\n"
        "  %28 = reshape(%27) {shape=[2, 1, 2]} : f32[2, 1, 2]  # head\n"
        "  %29 = reshape(%28) {shape=[2, 2]} : f32[2, 2]  # mean\n"
        "  %30 = reshape(%29) {shape=[2, 1, 2]} : f32[2, 1, 2]  # mean\n"
        "  %31 = affine(%30) {scale=0.125, shift=0} : f32[2, 1, 2]  # mean\n"
        "  %32 = broadcast(%31) {shape=[2, 8, 2]} : f32[2, 8, 2]  # mean\n"
        "  %33 = scatter_tokens(%32) {axis=1, balanced=true, rank=1, ranks=2} : f32[2, 4, "
        "2]  # mean\n"
        "  %34 = add(%26, %33) : f32[2, 4, 2]  # attention\n"
        "  %35 = attention_backward(%34, %6, %7, %5) {balanced=true, causal=true, heads=1, "
        "rank=1, ranks=2} : f32[2, 4, 6]  # attention\n"
        "  %36 = reduce(%35) {axes=[0], kind=sum} : f32[4, 6]  # embed\n"
        "  %37 = reshape(%36) {shape=[1, 4, 6]} : f32[1, 4, 6]  # embed\n"
        "  %38 = slice(%37) {after=[0, 2, 0], before=[0, 0, 0]} : f32[1, 2, 6]  # embed\n"
        "  %39 = slice(%37) {after=[0, 0, 0], before=[0, 2, 0]} : f32[1, 2, 6]  # embed\n"
        "  gradient of positions = pad(%39) {after=[0, 2, 0], before=[0, 4, 0]} : f32[1, "
        "8, 6]  # embed\n"
        "  %41 = pad(%38) {after=[0, 4, 0], before=[0, 2, 0]} : f32[1, 8, 6]  # embed\n"
        "  gradient of table = embedding_backward(%16, %35) {rows=5} : f32[5, 6]  # embed\n");
}

TEST_CASE("attention over the tokens of several ranks gathers keys and values twice") {
  CHECK(
      with_tokens_cut(0, 2, true) ==
      "forward:\n"
      "  %14 = slice(ids) {after=[0, 6], before=[0, 0]} : i32[2, 2]  # embed\n"
      "  %15 = slice(ids) {after=[0, 0], before=[0, 6]} : i32[2, 2]  # embed\n"
      "  %16 = concat(%14, %15) {axis=1} : i32[2, 4]  # embed\n"
      "  %3 = embedding(%16, table) : f32[2, 4, 6]  # embed\n"
      "  %17 = slice(positions) {after=[0, 6, 0], before=[0, 0, 0]} : f32[1, 2, 6]  # embed\n"
      "  %18 = slice(positions) {after=[0, 0, 0], before=[0, 6, 0]} : f32[1, 2, 6]  # embed\n"
      "  %19 = concat(%17, %18) {axis=1} : f32[1, 4, 6]  # embed\n"
      "  %5 = add(%3, %19) : f32[2, 4, 6]  # embed\n"
      "  %43 = slice(%5) {after=[0, 0, 4], before=[0, 0, 0], never_again=true} : f32[2, 4, 2]  # "
      "attention\n"
      "  %44 = reshape(%43) {never_again=true, shape=[2, 4, 1, 2]} : f32[2, 4, 1, 2]  # attention\n"
      "  %45 = slice(%5) {after=[0, 0, 0], before=[0, 0, 2], never_again=true} : f32[2, 4, 4]  # "
      "attention\n"
      "  %46 = all_gather_begin(%45) {never_again=true, shapes=[3, 2, 2, 16], slot=0} : f32[2, 2, "
      "16]  # attention\n"
      "  %47 = all_gather_end(%46, %45) {never_again=true, part=true, slot=0} : f32[2, 2, 16]  # "
      "attention\n"
      "  %48 = transpose(%47) {never_again=true, permutation=[1, 0, 2]} : f32[2, 2, 16]  # "
      "attention\n"
      "  %49 = reshape(%48) {never_again=true, shape=[2, 8, 4]} : f32[2, 8, 4]  # attention\n"
      "  %50 = slice(%49) {after=[0, 6, 0], before=[0, 0, 0], never_again=true} : f32[2, 2, 4]  # "
      "attention\n"
      "  %51 = slice(%49) {after=[0, 2, 0], before=[0, 4, 0], never_again=true} : f32[2, 2, 4]  # "
      "attention\n"
      "  %52 = slice(%49) {after=[0, 0, 0], before=[0, 6, 0], never_again=true} : f32[2, 2, 4]  # "
      "attention\n"
      "  %53 = slice(%49) {after=[0, 4, 0], before=[0, 2, 0], never_again=true} : f32[2, 2, 4]  # "
      "attention\n"
      "  %54 = concat(%50, %51, %52, %53) {axis=1, never_again=true} : f32[2, 8, 4]  # attention\n"
      "  %55 = slice(%54) {after=[0, 0, 2], before=[0, 0, 0], never_again=true} : f32[2, 8, 2]  # "
      "attention\n"
      "  %56 = reshape(%55) {never_again=true, shape=[2, 8, 1, 2]} : f32[2, 8, 1, 2]  # attention\n"
      "  %57 = slice(%54) {after=[0, 0, 0], before=[0, 0, 2], never_again=true} : f32[2, 8, 2]  # "
      "attention\n"
      "  %58 = reshape(%57) {never_again=true, shape=[2, 8, 1, 2]} : f32[2, 8, 1, 2]  # attention\n"
      "  %59 = slice(%44) {after=[0, 2, 0, 0], before=[0, 0, 0, 0], never_again=true} : f32[2, 2, "
      "1, 2]  # attention\n"
      "  %60 = slice(%56) {after=[0, 6, 0, 0], before=[0, 0, 0, 0], never_again=true} : f32[2, 2, "
      "1, 2]  # attention\n"
      "  %61 = slice(%58) {after=[0, 6, 0, 0], before=[0, 0, 0, 0], never_again=true} : f32[2, 2, "
      "1, 2]  # attention\n"
      "  %62, %63 = attention(%59, %60, %61) {all_keys=8, all_queries=8, causal=true, "
      "first_query=0, never_again=true} : f32[2, 2, 1, 2], f32[2, 1, 2]  # attention\n"
      "  %64 = slice(%44) {after=[0, 0, 0, 0], before=[0, 2, 0, 0], never_again=true} : f32[2, 2, "
      "1, 2]  # attention\n"
      "  %65, %66 = attention(%64, %56, %58) {all_keys=8, all_queries=8, causal=true, "
      "first_query=6, never_again=true} : f32[2, 2, 1, 2], f32[2, 1, 2]  # attention\n"
      "  %67 = concat(%62, %65) {axis=1, never_again=true} : f32[2, 4, 1, 2]  # attention\n"
      "  %68 = reshape(%67) {never_again=true, shape=[2, 4, 2]} : f32[2, 4, 2]  # attention\n"
      "  %69 = concat(%63, %66) {axis=2, never_again=true} : f32[2, 1, 4]  # attention\n"
      "  %70 = all_gather_begin(%68) {shapes=[3, 2, 2, 8], slot=1} : f32[2, 2, 8]  # mean\n"
      "  %71 = all_gather_end(%70, %68) {part=true, slot=1} : f32[2, 2, 8]  # mean\n"
      "  %72 = transpose(%71) {permutation=[1, 0, 2]} : f32[2, 2, 8]  # mean\n"
      "  %73 = reshape(%72) {shape=[2, 8, 2]} : f32[2, 8, 2]  # mean\n"
      "  %74 = slice(%73) {after=[0, 6, 0], before=[0, 0, 0]} : f32[2, 2, 2]  # mean\n"
      "  %75 = slice(%73) {after=[0, 2, 0], before=[0, 4, 0]} : f32[2, 2, 2]  # mean\n"
      "  %76 = slice(%73) {after=[0, 0, 0], before=[0, 6, 0]} : f32[2, 2, 2]  # mean\n"
      "  %77 = slice(%73) {after=[0, 4, 0], before=[0, 2, 0]} : f32[2, 2, 2]  # mean\n"
      "  %78 = concat(%74, %75, %76, %77) {axis=1} : f32[2, 8, 2]  # mean\n"
      "  %8 = reduce(%78) {axes=[1], kind=mean} : f32[2, 2]  # mean\n"
      "  %9 = reshape(%8) {shape=[2, 1, 2]} : f32[2, 1, 2]  # mean\n"
      "  %10 = add(%68, %9) : f32[2, 4, 2]  # head\n"
      "  %21 = slice(targets) {after=[0, 6], before=[0, 0]} : i32[2, 2]  # head\n"
      "  %22 = slice(targets) {after=[0, 0], before=[0, 6]} : i32[2, 2]  # head\n"
      "  %23 = concat(%21, %22) {axis=1} : i32[2, 4]  # head\n"
      "  %11, %12, %13 = softmax_cross_entropy(%10, %23) : f64[1], f32[2, 4], f64[1]  # head\n"
      "backward:\n"
      "  %25 = loss_seed(step_state, %11) : f64[1]\n"
      "  %26 = softmax_cross_entropy_backward(%10, %23, %12, %25) : f32[2, 4, 2]  # head\n"
      "  %27 = reduce(%26) {axes=[1], kind=sum} : f32[2, 2]  # head\n"
      "  %28 = reshape(%27) {shape=[2, 1, 2]} : f32[2, 1, 2]  # head\n"
      "  %29 = reshape(%28) {shape=[2, 2]} : f32[2, 2]  # mean\n"
      "  %30 = reshape(%29) {shape=[2, 1, 2]} : f32[2, 1, 2]  # mean\n"
      "  %31 = affine(%30) {scale=0.125, shift=0} : f32[2, 1, 2]  # mean\n"
      "  %32 = broadcast(%31) {shape=[2, 8, 2]} : f32[2, 8, 2]  # mean\n"
      "  %79 = slice(%32) {after=[0, 6, 0], before=[0, 0, 0]} : f32[2, 2, 2]  # mean\n"
      "  %80 = slice(%32) {after=[0, 0, 0], before=[0, 6, 0]} : f32[2, 2, 2]  # mean\n"
      "  %81 = slice(%32) {after=[0, 4, 0], before=[0, 2, 0]} : f32[2, 2, 2]  # mean\n"
      "  %82 = slice(%32) {after=[0, 2, 0], before=[0, 4, 0]} : f32[2, 2, 2]  # mean\n"
      "  %83 = concat(%79, %80, %81, %82) {axis=1} : f32[2, 8, 2]  # mean\n"
      "  %84 = reshape(%83) {shape=[2, 2, 8]} : f32[2, 2, 8]  # mean\n"
      "  %85 = transpose(%84) {permutation=[1, 0, 2]} : f32[2, 2, 8]  # mean\n"
      "  %86 = reduce_scatter_begin(%85) {elements=16, ranks=2, slot=2} : f32[16]  # mean\n"
      "  %87 = reduce_scatter_end(%86, %85) {slot=2} : f32[16]  # mean\n"
      "  %88 = reshape(%87) {shape=[2, 4, 2]} : f32[2, 4, 2]  # mean\n"
      "  %34 = add(%26, %88) : f32[2, 4, 2]  # attention\n"
      "  %89 = slice(%5) {after=[0, 0, 4], before=[0, 0, 0]} : f32[2, 4, 2]  # attention\n"
      "  %90 = reshape(%89) {shape=[2, 4, 1, 2]} : f32[2, 4, 1, 2]  # attention\n"
      "  %91 = slice(%5) {after=[0, 0, 0], before=[0, 0, 2]} : f32[2, 4, 4]  # attention\n"
      "  %92 = all_gather_begin(%91) {shapes=[3, 2, 2, 16], slot=3} : f32[2, 2, 16]  # attention\n"
      "  %93 = all_gather_end(%92, %91) {part=true, slot=3} : f32[2, 2, 16]  # attention\n"
      "  %94 = transpose(%93) {permutation=[1, 0, 2]} : f32[2, 2, 16]  # attention\n"
      "  %95 = reshape(%94) {shape=[2, 8, 4]} : f32[2, 8, 4]  # attention\n"
      "  %96 = slice(%95) {after=[0, 6, 0], before=[0, 0, 0]} : f32[2, 2, 4]  # attention\n"
      "  %97 = slice(%95) {after=[0, 2, 0], before=[0, 4, 0]} : f32[2, 2, 4]  # attention\n"
      "  %98 = slice(%95) {after=[0, 0, 0], before=[0, 6, 0]} : f32[2, 2, 4]  # attention\n"
      "  %99 = slice(%95) {after=[0, 4, 0], before=[0, 2, 0]} : f32[2, 2, 4]  # attention\n"
      "  %100 = concat(%96, %97, %98, %99) {axis=1} : f32[2, 8, 4]  # attention\n"
      "  %101 = slice(%100) {after=[0, 0, 2], before=[0, 0, 0]} : f32[2, 8, 2]  # attention\n"
      "  %102 = reshape(%101) {shape=[2, 8, 1, 2]} : f32[2, 8, 1, 2]  # attention\n"
      "  %103 = slice(%100) {after=[0, 0, 0], before=[0, 0, 2]} : f32[2, 8, 2]  # attention\n"
      "  %104 = reshape(%103) {shape=[2, 8, 1, 2]} : f32[2, 8, 1, 2]  # attention\n"
      "  %105 = reshape(%34) {shape=[2, 4, 1, 2]} : f32[2, 4, 1, 2]  # attention\n"
      "  %106 = reshape(%68) {shape=[2, 4, 1, 2]} : f32[2, 4, 1, 2]  # attention\n"
      "  %107 = slice(%105) {after=[0, 2, 0, 0], before=[0, 0, 0, 0]} : f32[2, 2, 1, 2]  # "
      "attention\n"
      "  %108 = slice(%106) {after=[0, 2, 0, 0], before=[0, 0, 0, 0]} : f32[2, 2, 1, 2]  # "
      "attention\n"
      "  %109 = slice(%69) {after=[0, 0, 2], before=[0, 0, 0]} : f32[2, 1, 2]  # attention\n"
      "  %110 = slice(%90) {after=[0, 2, 0, 0], before=[0, 0, 0, 0]} : f32[2, 2, 1, 2]  # "
      "attention\n"
      "  %111 = slice(%102) {after=[0, 6, 0, 0], before=[0, 0, 0, 0]} : f32[2, 2, 1, 2]  # "
      "attention\n"
      "  %112 = slice(%104) {after=[0, 6, 0, 0], before=[0, 0, 0, 0]} : f32[2, 2, 1, 2]  # "
      "attention\n"
      "  %113, %114, %115 = attention_backward(%107, %108, %109, %110, %111, %112) {all_keys=8, "
      "all_queries=8, causal=true, first_query=0} : f32[2, 2, 1, 2], f32[2, 2, 1, 2], f32[2, 2, 1, "
      "2]  # attention\n"
      "  %116 = slice(%105) {after=[0, 0, 0, 0], before=[0, 2, 0, 0]} : f32[2, 2, 1, 2]  # "
      "attention\n"
      "  %117 = slice(%106) {after=[0, 0, 0, 0], before=[0, 2, 0, 0]} : f32[2, 2, 1, 2]  # "
      "attention\n"
      "  %118 = slice(%69) {after=[0, 0, 0], before=[0, 0, 2]} : f32[2, 1, 2]  # attention\n"
      "  %119 = slice(%90) {after=[0, 0, 0, 0], before=[0, 2, 0, 0]} : f32[2, 2, 1, 2]  # "
      "attention\n"
      "  %120, %121, %122 = attention_backward(%116, %117, %118, %119, %102, %104) {all_keys=8, "
      "all_queries=8, causal=true, first_query=6} : f32[2, 2, 1, 2], f32[2, 8, 1, 2], f32[2, 8, 1, "
      "2]  # attention\n"
      "  %123 = concat(%113, %120) {axis=1} : f32[2, 4, 1, 2]  # attention\n"
      "  %124 = pad(%114) {after=[0, 6, 0, 0], before=[0, 0, 0, 0]} : f32[2, 8, 1, 2]  # "
      "attention\n"
      "  %125 = add(%124, %121) : f32[2, 8, 1, 2]  # attention\n"
      "  %126 = pad(%115) {after=[0, 6, 0, 0], before=[0, 0, 0, 0]} : f32[2, 8, 1, 2]  # "
      "attention\n"
      "  %127 = add(%126, %122) : f32[2, 8, 1, 2]  # attention\n"
      "  %128 = reshape(%123) {shape=[2, 4, 2]} : f32[2, 4, 2]  # attention\n"
      "  %129 = reshape(%125) {shape=[2, 8, 2]} : f32[2, 8, 2]  # attention\n"
      "  %130 = reshape(%127) {shape=[2, 8, 2]} : f32[2, 8, 2]  # attention\n"
      "  %131 = concat(%129, %130) {axis=2} : f32[2, 8, 4]  # attention\n"
      "  %132 = slice(%131) {after=[0, 6, 0], before=[0, 0, 0]} : f32[2, 2, 4]  # attention\n"
      "  %133 = slice(%131) {after=[0, 0, 0], before=[0, 6, 0]} : f32[2, 2, 4]  # attention\n"
      "  %134 = slice(%131) {after=[0, 4, 0], before=[0, 2, 0]} : f32[2, 2, 4]  # attention\n"
      "  %135 = slice(%131) {after=[0, 2, 0], before=[0, 4, 0]} : f32[2, 2, 4]  # attention\n"
      "  %136 = concat(%132, %133, %134, %135) {axis=1} : f32[2, 8, 4]  # attention\n"
      "  %137 = reshape(%136) {shape=[2, 2, 16]} : f32[2, 2, 16]  # attention\n"
      "  %138 = transpose(%137) {permutation=[1, 0, 2]} : f32[2, 2, 16]  # attention\n"
      "  %139 = reduce_scatter_begin(%138) {elements=32, ranks=2, slot=4} : f32[32]  # attention\n"
      "  %140 = reduce_scatter_end(%139, %138) {slot=4} : f32[32]  # attention\n"
      "  %141 = reshape(%140) {shape=[2, 4, 4]} : f32[2, 4, 4]  # attention\n"
      "  %142 = concat(%128, %141) {axis=2} : f32[2, 4, 6]  # attention\n"
      "  %36 = reduce(%142) {axes=[0], kind=sum} : f32[4, 6]  # embed\n"
      "  %37 = reshape(%36) {shape=[1, 4, 6]} : f32[1, 4, 6]  # embed\n"
      "  %38 = slice(%37) {after=[0, 2, 0], before=[0, 0, 0]} : f32[1, 2, 6]  # embed\n"
      "  %39 = slice(%37) {after=[0, 0, 0], before=[0, 2, 0]} : f32[1, 2, 6]  # embed\n"
      "  gradient of positions = pad(%39) {after=[0, 0, 0], before=[0, 6, 0]} : f32[1, 8, 6]  # "
      "embed\n"
      "  %41 = pad(%38) {after=[0, 6, 0], before=[0, 0, 0]} : f32[1, 8, 6]  # embed\n"
      "  gradient of table = embedding_backward(%16, %142) {rows=5} : f32[5, 6]  # embed\n");
}

}  // namespace dltrain
