#include "passes/partition.h"

#include "catch.h"
#include "graph/builder.h"
#include "graph/examples.h"
#include "graph/reverse.h"

namespace dltrain {
namespace {

// Three products with activations between them; 2 ranks share 5 values, and 3 outputs.
struct PartitionExample {
  Graph graph;
  ValueId loss = kNoValue;
  std::vector<ValueId> parameters;
};

PartitionExample partition_example() {
  PartitionExample out;
  GraphBuilder b(out.graph);
  const auto parameter = [&](const char* name, Shape shape) {
    out.parameters.push_back(b.add_value(name, {shape, DType::f32}, Role::parameter));
    return out.parameters.back();
  };
  const Attributes transposed{{"transpose_b", true}};
  const ValueId x = b.add_value("x", {Shape{4, 3}, DType::f32}, Role::input);
  const ValueId y = b.emit1("matmul", {x, parameter("a", {5, 3}), parameter("c", {5})}, transposed);
  const ValueId h = b.emit1("tanh", {y});
  const ValueId z = b.emit1("matmul", {h, parameter("b", {2, 5}), parameter("d", {2})}, transposed);
  const ValueId w = b.emit1("matmul", {b.emit1("tanh", {z}), parameter("e", {3, 2})}, transposed);
  const ValueId p = b.emit1("softmax", {w});  // it needs whole rows
  const ValueId sum =
      b.emit1("reduce", {p}, {{"kind", "sum"}, {"axes", std::vector<int64_t>{0, 1}}});
  out.loss = b.emit1("cast", {sum}, {{"dtype", "f64"}});
  return out;
}

std::string partitioned(int rank, bool lowered) {
  PartitionExample example = partition_example();
  const PartitionOptions options{.mesh = Mesh({{mesh_axes::kTensor, 2}}), .rank = rank};
  ValueId* const kept[]{&example.loss};
  partition(example.graph, options, kept);
  reverse(example.graph, {example.loss}, example.parameters);
  if (lowered) lower_placements(example.graph, kept);
  return print_graph(example.graph);
}

}  // namespace

TEST_CASE("products alternate between columns and rows, and the backward follows") {
  CHECK(partitioned(1, false) ==
        "forward:\n"
        "  %14 = all_reduce_gradient(x) : f32[4, 3]\n"
        "  %3 = matmul(%14, a, c) {transpose_b=true} : f32[4, 2]\n"
        "  %4 = tanh(%3) : f32[4, 2]\n"
        "  %7 = matmul(%4, b) {transpose_b=true} : f32[4, 2]\n"
        "  %15 = all_reduce(%7) : f32[4, 2]\n"
        "  %16 = add(%15, d) : f32[4, 2]\n"
        "  %8 = tanh(%16) : f32[4, 2]\n"
        "  %17 = all_reduce_gradient(%8) : f32[4, 2]\n"
        "  %10 = matmul(%17, e) {transpose_b=true} : f32[4, 1]\n"
        "  %18 = all_gather(%10) {dimension=1, parts=[3, 2], rank=1, ranks=2} : f32[4, 3]\n"
        "  %11 = softmax(%18) : f32[4, 3]\n"
        "  %12 = reduce(%11) {axes=[0, 1], kind=sum} : f32[1]\n"
        "  %13 = cast(%12) {dtype=f64} : f64[1]\n"
        "backward:\n"
        "  %20 = loss_seed(step_state, %13) : f64[1]\n"
        "  %21 = cast(%20) {dtype=f32} : f32[1]\n"
        "  %22 = reshape(%21) {shape=[1, 1]} : f32[1, 1]\n"
        "  %23 = broadcast(%22) {shape=[4, 3]} : f32[4, 3]\n"
        "  %24 = softmax_backward(%11, %23) : f32[4, 3]\n"
        "  %25 = slice(%24) {after=[0, 0], before=[0, 2]} : f32[4, 1]\n"
        "  %26 = matmul(%25, e) {transpose_b=false} : f32[4, 2]\n"
        "  gradient of e = matmul(%25, %17) {output_dtype=f32, transpose_a=true, "
        "transpose_b=false} : f32[1, 2]\n"
        "  %28 = all_reduce(%26) : f32[4, 2]\n"
        "  %29 = tanh_backward(%8, %28) : f32[4, 2]\n"
        "  gradient of d = reduce(%29) {axes=[0], kind=sum} : f32[2]\n"
        "  %31 = matmul(%29, b) {transpose_b=false} : f32[4, 2]\n"
        "  gradient of b = matmul(%29, %4) {output_dtype=f32, transpose_a=true, transpose_b=false} "
        ": f32[2, 2]\n"
        "  %33 = tanh_backward(%4, %31) : f32[4, 2]\n"
        "  gradient of a = matmul(%33, %14) {output_dtype=f32, transpose_a=true, "
        "transpose_b=false} : f32[2, 3]\n"
        "  gradient of c = reduce(%33) {axes=[0], kind=sum} : f32[2]\n");
}

TEST_CASE("changes of placement become collectives, and reads of replicated values vanish") {
  CHECK(partitioned(1, true) ==
        "forward:\n"
        "  %3 = matmul(x, a, c) {transpose_b=true} : f32[4, 2]\n"
        "  %4 = tanh(%3) : f32[4, 2]\n"
        "  %7 = matmul(%4, b) {transpose_b=true} : f32[4, 2]\n"
        "  %36 = all_reduce_begin(%7) {slot=0} : f32[4, 2]\n"
        "  %37 = all_reduce_end(%36) {slot=0} : f32[4, 2]\n"
        "  %16 = add(%37, d) : f32[4, 2]\n"
        "  %8 = tanh(%16) : f32[4, 2]\n"
        "  %10 = matmul(%8, e) {transpose_b=true} : f32[4, 1]\n"
        "  %38 = pad(%10) {after=[0, 1], before=[0, 0]} : f32[4, 2]\n"
        "  %39 = all_gather_begin(%38) {shapes=[3, 2, 4, 2], slot=1} : f32[2, 4, 2]\n"
        "  %40 = all_gather_end(%39, %38) {part=true, slot=1} : f32[2, 4, 2]\n"
        "  %41 = transpose(%40) {permutation=[1, 0, 2]} : f32[4, 2, 2]\n"
        "  %42 = reshape(%41) {shape=[4, 4]} : f32[4, 4]\n"
        "  %43 = slice(%42) {after=[0, 1], before=[0, 0]} : f32[4, 3]\n"
        "  %11 = softmax(%43) : f32[4, 3]\n"
        "  %12 = reduce(%11) {axes=[0, 1], kind=sum} : f32[1]\n"
        "  %13 = cast(%12) {dtype=f64} : f64[1]\n"
        "backward:\n"
        "  %20 = loss_seed(step_state, %13) : f64[1]\n"
        "  %21 = cast(%20) {dtype=f32} : f32[1]\n"
        "  %22 = reshape(%21) {shape=[1, 1]} : f32[1, 1]\n"
        "  %23 = broadcast(%22) {shape=[4, 3]} : f32[4, 3]\n"
        "  %24 = softmax_backward(%11, %23) : f32[4, 3]\n"
        "  %25 = slice(%24) {after=[0, 0], before=[0, 2]} : f32[4, 1]\n"
        "  %26 = matmul(%25, e) {transpose_b=false} : f32[4, 2]\n"
        "  gradient of e = matmul(%25, %8) {output_dtype=f32, transpose_a=true, transpose_b=false} "
        ": f32[1, 2]\n"
        "  %44 = all_reduce_begin(%26) {slot=2} : f32[4, 2]\n"
        "  %45 = all_reduce_end(%44) {slot=2} : f32[4, 2]\n"
        "  %29 = tanh_backward(%8, %45) : f32[4, 2]\n"
        "  gradient of d = reduce(%29) {axes=[0], kind=sum} : f32[2]\n"
        "  %31 = matmul(%29, b) {transpose_b=false} : f32[4, 2]\n"
        "  gradient of b = matmul(%29, %4) {output_dtype=f32, transpose_a=true, transpose_b=false} "
        ": f32[2, 2]\n"
        "  %33 = tanh_backward(%4, %31) : f32[4, 2]\n"
        "  gradient of a = matmul(%33, x) {output_dtype=f32, transpose_a=true, transpose_b=false} "
        ": f32[2, 3]\n"
        "  gradient of c = reduce(%33) {axes=[0], kind=sum} : f32[2]\n");
}

TEST_CASE("shards of the first dimension are in order as they arrive") {
  for (const int dimension : {0, 1}) {
    Graph graph;
    GraphBuilder b(graph);
    const ValueId x = b.add_value("x", {Shape{2, 3}, DType::f32}, Role::input);
    const int64_t whole = 2 * b.spec(x).shape[dimension];
    const Placement shards{Placement::sharded, dimension, even_cut(whole, 2)};
    b.emit1("tanh", {emit_gather(b, x, shards, 2, 0, {})});
    lower_placements(graph, {});
    CHECK(ops(graph, Phase::forward) == (dimension == 0
                                             ? "all_gather_begin all_gather_end reshape tanh "
                                             : "all_gather_begin all_gather_end transpose reshape "
                                               "tanh "));
  }
}

}  // namespace dltrain
