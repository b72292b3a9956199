#include "passes/partition.h"

#include "catch.h"
#include "graph/builder.h"
#include "graph/reverse.h"

namespace dltrain {
namespace {

// Two products with biases and an activation between them; 5 hidden values for 2 ranks.
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
  const ValueId sum =
      b.emit1("reduce", {z}, {{"kind", "sum"}, {"axes", std::vector<int64_t>{0, 1}}});
  out.loss = b.emit1("cast", {sum}, {{"dtype", "f64"}});
  return out;
}

std::string partitioned(int rank, bool lowered) {
  PartitionExample example = partition_example();
  const PartitionOptions options{.mesh = Mesh({{mesh_axes::kTensor, 2}}), .rank = rank};
  ValueId* const kept[]{&example.loss};
  partition(example.graph, options, kept);
  reverse(example.graph, {example.loss}, example.parameters);
  if (lowered) lower_placements(example.graph, options, false, kept);
  return print_graph(example.graph);
}

}  // namespace

TEST_CASE("products alternate between columns and rows, and the backward follows") {
  CHECK(partitioned(1, false) == "");
}

TEST_CASE("changes of placement become collectives, and reads of replicated values vanish") {
  CHECK(partitioned(1, true) == "");
}

}  // namespace dltrain
