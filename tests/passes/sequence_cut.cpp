#include "passes/sequence_cut.h"

#include "catch.h"
#include "graph/builder.h"
#include "graph/reverse.h"
#include "passes/context_cut.h"
#include "passes/cut_products.h"
#include "passes/overlap.h"
#include "passes/recompute.h"

namespace dltrain {
namespace {

// Two shared products, a bias, a norm and a residual between them and two more.
// With `pieces` above 1 products are cut.
Graph graph_with_rows_cut(int rank, bool lowered, int pieces) {
  Graph graph;
  GraphBuilder b(graph);
  std::vector<ValueId> parameters;
  const auto parameter = [&](const char* name, Shape shape) {
    parameters.push_back(b.add_value(name, {shape, DType::f32}, Role::parameter));
    return parameters.back();
  };
  const Attributes transposed{{"transpose_b", true}};
  const ValueId x = b.add_value("x", {Shape{4, 2}, DType::f32}, Role::input);
  ValueId y = b.emit1("matmul", {x, parameter("a", {6, 2})}, transposed);
  y = b.emit1("matmul", {y, parameter("b", {2, 6}), parameter("c", {2})}, transposed);
  y = b.emit1("add", {y, x});
  const ValueId norm = b.emit("rms_norm", {y, parameter("g", {2})})[0];
  ValueId z = b.emit1("matmul", {norm, parameter("d", {6, 2})}, transposed);
  z = b.emit1("matmul", {z, parameter("e", {2, 6})}, transposed);
  z = b.emit1("add", {z, y});
  const ValueId sum =
      b.emit1("reduce", {z}, {{"kind", "sum"}, {"axes", std::vector<int64_t>{0, 1}}});
  ValueId loss = b.emit1("cast", {sum}, {{"dtype", "f64"}});
  const PartitionOptions options{.mesh = Mesh({{mesh_axes::kTensor, 2}}), .rank = rank};
  ValueId* const kept[]{&loss};
  partition(graph, options, kept);
  CHECK(cut_sequence(graph, options, kept) == 2);
  if (!lowered) return graph;
  reverse(graph, {loss}, parameters);
  CHECK(cut_products(graph, [&](const Node&, double, double, bool) { return pieces; }) ==
        (pieces > 1 ? 3 : 0));
  lower_placements(graph, kept);
  lower_context(graph, {.mesh = options.mesh, .rank = rank});
  return overlap_messages(recompute(std::move(graph), {}).graph);
}

std::string with_rows_cut(int rank, bool lowered) {
  const std::string all = print_graph(graph_with_rows_cut(rank, lowered, 1));
  return lowered ? all.substr(all.find("backward:")) : all;
}

}  // namespace

TEST_CASE("pieces of products run while the messages of others are on their way") {
  std::vector<std::string> order;
  int gathers_again = 0;
  for (const Node& node : graph_with_rows_cut(1, true, 2).nodes) {
    const bool message = node.op->message != MessageKind::none;
    if (node.phase == Phase::backward && node.op->name == "all_gather_begin") ++gathers_again;
    if (node.phase == Phase::forward && (message || node.op->name == "matmul")) {
      order.emplace_back(node.op->name);
    }
  }
  const std::vector<std::string> scatters{"matmul",
                                          "reduce_scatter_begin",
                                          "matmul",
                                          "reduce_scatter_begin",
                                          "reduce_scatter_end",
                                          "reduce_scatter_end"};
  std::vector<std::string> expected{"matmul"};
  expected.insert(expected.end(), scatters.begin(), scatters.end());
  expected.insert(expected.end(), {"all_gather_begin", "all_gather_begin", "all_gather_end",
                                   "matmul", "all_gather_end", "matmul"});
  expected.insert(expected.end(), scatters.begin(), scatters.end());
  expected.insert(expected.end(), {"all_gather_begin", "all_gather_end"});  // of the loss
  CHECK(order == expected);
  CHECK(gathers_again > 0);
}

TEST_CASE("sums become rows of ranks, which are gathered where shared products read them") {
  CHECK(with_rows_cut(1, false) ==
        "forward:\n"
        "  %17 = all_reduce_gradient(x) : f32[4, 2]\n"
        "  %2 = matmul(%17, a) {transpose_b=true} : f32[4, 3]\n"
        "  %5 = matmul(%2, b) {transpose_b=true} : f32[4, 2]\n"
        "  %18 = scatter_tokens(%5) {axis=0, balanced=false, rank=1, ranks=2} : f32[2, 2]\n"
        "  %22 = all_reduce_gradient(c) : f32[2]\n"
        "  %19 = add(%18, %22) : f32[2, 2]\n"
        "  %23 = all_reduce_gradient(x) : f32[4, 2]\n"
        "  %24 = slice(%23) {after=[0, 0], before=[2, 0]} : f32[2, 2]\n"
        "  %6 = add(%19, %24) : f32[2, 2]\n"
        "  %25 = all_reduce_gradient(g) : f32[2]\n"
        "  %8, %9 = rms_norm(%6, %25) : f32[2, 2], f32[2]\n"
        "  %20 = gather_tokens(%8) {always_again=true, axis=0, balanced=false, rank=1, "
        "ranks=2} : f32[4, 2]\n"
        "  %11 = matmul(%20, d) {transpose_b=true} : f32[4, 3]\n"
        "  %13 = matmul(%11, e) {transpose_b=true} : f32[4, 2]\n"
        "  %21 = scatter_tokens(%13) {axis=0, balanced=false, rank=1, ranks=2} : f32[2, 2]\n"
        "  %14 = add(%21, %6) : f32[2, 2]\n"
        "  %26 = all_gather(%14) {dimension=0, parts=[4, 2], rank=1, ranks=2} : f32[4, 2]\n"
        "  %15 = reduce(%26) {axes=[0, 1], kind=sum} : f32[1]\n"
        "  %16 = cast(%15) {dtype=f64} : f64[1]\n");
}

TEST_CASE("rows are gathered again, and gradients of weights hide messages") {
  CHECK(with_rows_cut(1, true) ==
        "backward:\n"
        "  %28 = loss_seed(step_state, %16) : f64[1]\n"
        "  %29 = cast(%28) {dtype=f32} : f32[1]\n"
        "  %30 = reshape(%29) {shape=[1, 1]} : f32[1, 1]\n"
        "  %31 = broadcast(%30) {shape=[4, 2]} : f32[4, 2]\n"
        "  %32 = slice(%31) {after=[0, 0], before=[2, 0]} : f32[2, 2]\n"
        "  %67 = all_gather_begin(%32) {shapes=[3, 2, 1, 4], slot=6} : f32[2, 1, 4]\n"
        "  %68 = all_gather_end(%67, %32) {part=true, slot=6} : f32[2, 1, 4]\n"
        "  %76 = all_gather_begin(%8) {always_again=true, shapes=[3, 2, 1, 4], slot=9} : "
        "f32[2, 1, 4]\n"
        "  %69 = reshape(%68) {shape=[4, 2]} : f32[4, 2]\n"
        "  %34 = matmul(%69, e) {transpose_b=false} : f32[4, 3]\n"
        "  %36 = matmul(%34, d) {transpose_b=false} : f32[4, 2]\n"
        "  %77 = all_gather_end(%76, %8) {always_again=true, part=true, slot=9} : f32[2, 1, "
        "4]\n"
        "  %78 = reshape(%77) {always_again=true, shape=[4, 2]} : f32[4, 2]\n"
        "  %70 = reduce_scatter_begin(%36) {elements=4, ranks=2, slot=7} : f32[4]\n"
        "  gradient of e = matmul(%69, %11) {output_dtype=f32, transpose_a=true, "
        "transpose_b=false} : f32[2, 3]\n"
        "  %71 = reduce_scatter_end(%70, %36) {slot=7} : f32[4]\n"
        "  %72 = reshape(%71) {shape=[2, 2]} : f32[2, 2]\n"
        "  %39, %40 = rms_norm_backward(%6, %72, g, %9) : f32[2, 2], f32[2]\n"
        "  %42 = add(%32, %39) : f32[2, 2]\n"
        "  %43 = reduce(%42) {axes=[0], kind=sum} : f32[2]\n"
        "  %73 = all_gather_begin(%42) {shapes=[3, 2, 1, 4], slot=8} : f32[2, 1, 4]\n"
        "  gradient of d = matmul(%34, %78) {output_dtype=f32, transpose_a=true, "
        "transpose_b=false} : f32[3, 2]\n"
        "  %74 = all_gather_end(%73, %42) {part=true, slot=8} : f32[2, 1, 4]\n"
        "  %75 = reshape(%74) {shape=[4, 2]} : f32[4, 2]\n"
        "  %46 = matmul(%75, b) {transpose_b=false} : f32[4, 3]\n"
        "  %52, %55 = all_reduce_begin(%40, %43) {slot=1} : f32[2], f32[2]\n"
        "  gradient of b = matmul(%75, %2) {output_dtype=f32, transpose_a=true, "
        "transpose_b=false} : f32[2, 3]\n"
        "  gradient of a = matmul(%46, x) {output_dtype=f32, transpose_a=true, "
        "transpose_b=false} : f32[3, 2]\n"
        "  %53, %56 = all_reduce_end(%52, %55) {slot=1} : f32[2], f32[2]\n"
        "  gradient of g = identity(%53) : f32[2]\n"
        "  gradient of c = identity(%56) : f32[2]\n");
}

}  // namespace dltrain
