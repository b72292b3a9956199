#include "passes/autocast.h"

#include "catch.h"
#include "computing_in.h"
#include "graph/builder.h"
#include "graph/reverse.h"
#include "passes/tf32.h"

namespace dltrain {
namespace {

struct AutocastExample {
  Graph graph;
  ValueId output, loss;
  std::vector<ValueId> parameters;
};

// Two linear layers with an activation and a shift between them, a loss after a reshape.
AutocastExample example_autocast() {
  AutocastExample out;
  GraphBuilder b(out.graph);
  const auto parameter = [&](const char* name, const Shape& shape) {
    out.parameters.push_back(b.add_value(name, {shape, DType::f32}, Role::parameter));
    return out.parameters.back();
  };
  const ValueId x = b.add_value("x", {Shape{4, 8}, DType::f32}, Role::input);
  const ValueId targets = b.add_value("targets", {Shape{4}, DType::i32}, Role::input);
  b.set_layer("layers.0");
  const ValueId hidden = b.emit1("relu", {b.emit1("matmul", {x, parameter("w0", Shape{8, 6})})});
  b.set_layer("layers.1");
  const ValueId shifted = b.emit1("add", {hidden, parameter("shift", Shape{6})});
  out.output = b.emit1("matmul", {shifted, parameter("w1", Shape{6, 3})});
  b.set_layer("loss");
  out.loss = b.emit("softmax_cross_entropy", {out.output, targets})[0];
  return out;
}

TEST_CASE(
    "autocast computes products and what follows them in bf16, and cross-entropy reads bf16") {
  const AutocastExample before = example_autocast();
  CHECK(print_graph(before.graph) ==
        "forward:\n"
        "  %3 = matmul(x, w0) : f32[4, 6]  # layers.0\n"
        "  %4 = relu(%3) : f32[4, 6]  # layers.0\n"
        "  %6 = add(%4, shift) : f32[4, 6]  # layers.1\n"
        "  %8 = matmul(%6, w1) : f32[4, 3]  # layers.1\n"
        "  %9, %10, %11 = softmax_cross_entropy(%8, targets) : f64[1], f32[4], f64[1]  # loss\n");
  const Graph after = autocast(before.graph, computing_in(DType::bf16), {before.output});
  CHECK(print_graph(after) ==
        "forward:\n"
        "  %12 = cast(x) {dtype=bf16} : bf16[4, 8]  # layers.0\n"
        "  %14 = matmul(%12, low_precision of w0) : bf16[4, 6]  # layers.0\n"
        "  %15 = relu(%14) : bf16[4, 6]  # layers.0\n"
        "  %17 = add(%15, low_precision of shift) : bf16[4, 6]  # layers.1\n"
        "  %19 = matmul(%17, low_precision of w1) : bf16[4, 3]  # layers.1\n"
        "  %9, %10, %11 = softmax_cross_entropy(%19, targets) : f64[1], f32[4], f64[1]  # loss\n"
        "  %8 = cast(%19) {dtype=f32} : f32[4, 3]  # loss\n");
  CHECK(print_graph(autocast(after, computing_in(DType::bf16), {before.output})) ==
        print_graph(after));
}

TEST_CASE("the backward of a low-precision graph gives f32 gradients of the masters") {
  AutocastExample e = example_autocast();
  Graph graph = autocast(e.graph, computing_in(DType::bf16), {e.output});
  const auto gradients = reverse(graph, {e.loss}, e.parameters);
  verify_graph(graph);
  REQUIRE(gradients.size() == 3);
  for (const ParameterGradient& g : gradients) {
    CHECK(graph.value(g.gradient).spec ==
          TensorSpec{graph.value(g.parameter).spec.shape, DType::f32});
    CHECK(graph.value(g.gradient).name == "gradient of " + graph.value(g.parameter).name);
  }
  // The backward keeps 16-bit results of the forward.
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::backward || node.op->name != "matmul") continue;
    for (ValueId id : node.inputs) CHECK(graph.value(id).spec.dtype == DType::bf16);
  }
}

TEST_CASE(
    "norms keep f32 scales and statistics, and views of parameters are views of their copies") {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.add_value("x", {Shape{4, 8}, DType::f32}, Role::input);
  const ValueId w = b.add_value("w", {Shape{64}, DType::f32}, Role::parameter);
  const ValueId gamma = b.add_value("gamma", {Shape{8}, DType::f32}, Role::parameter);
  const ValueId view = b.emit1("reshape", {w}, {{"shape", std::vector<int64_t>{8, 8}}});
  const ValueId y = b.emit1("matmul", {x, view});
  const auto normalised = b.emit("batch_norm", {y, gamma, gamma}, {{"epsilon", 1e-5}});
  b.accumulate(b.emit1("identity", {normalised[1]}), "mean", Role::statistic);
  const ValueId sum =
      b.emit1("reduce", {normalised[0]}, {{"kind", "sum"}, {"axes", std::vector<int64_t>{0, 1}}});
  b.accumulate(b.emit1("identity", {sum}), "sum", Role::metric);
  const Graph after = autocast(graph, computing_in(DType::bf16), {});
  CHECK(print_graph(after) ==
        "forward:\n"
        "  %3 = reshape(w) {shape=[8, 8]} : f32[8, 8]\n"
        "  %11 = cast(x) {dtype=bf16} : bf16[4, 8]\n"
        "  %13 = reshape(low_precision of w) {shape=[8, 8]} : bf16[8, 8]\n"
        "  %14 = matmul(%11, %13) : bf16[4, 8]\n"
        "  %15, %6, %7 = batch_norm(%14, gamma, gamma) {epsilon=1e-05} : bf16[4, 8], f32[8], "
        "f32[8]\n"
        "  mean = identity(%6) : f32[8]\n"
        "  %9 = reduce(%15) {axes=[0, 1], kind=sum} : f32[1]\n"
        "  sum = identity(%9) : f32[1]\n");
}

TEST_CASE("the copies are written once a step from what the update has written") {
  AutocastExample e = example_autocast();
  Graph graph = autocast(e.graph, computing_in(DType::f16), {e.output});
  const auto gradients = reverse(graph, {e.loss}, e.parameters);
  GraphBuilder b(graph);
  b.set_phase(Phase::update);
  // The optimizer trains w0 alone.
  ValueId gradient = kNoValue;
  for (const ParameterGradient& g : gradients) {
    if (graph.value(g.parameter).name == "w0") gradient = g.gradient;
  }
  const ValueId state = b.emit1("gradient_norm", {b.step_state(), gradient});
  b.emit("sgd_update", {state, graph.find("w0"), gradient},
         {{"count", int64_t{1}}, {"momentum", 0.0}, {"nesterov", false}});
  emit_low_precision_update(graph);
  verify_graph(graph);
  const Node& last = graph.nodes.back();
  CHECK(last.op->name == "low_precision_update");
  REQUIRE(last.inputs.size() == 3);
  CHECK(graph.storage(last.inputs[1]) == graph.find("w0"));
  CHECK(last.inputs[2] == graph.find("low_precision of w0"));
}

TEST_CASE("averages are read, not the copies of what they average") {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.add_value("x", {Shape{4, 8}, DType::f32}, Role::input);
  const ValueId average = b.add_value("ema of w", {Shape{8, 2}, DType::f32}, Role::ema);
  const ValueId y = b.emit1("matmul", {x, average});
  CHECK(print_graph(autocast(graph, computing_in(DType::bf16), {y})) ==
        "forward:\n"
        "  %3 = cast(x) {dtype=bf16} : bf16[4, 8]\n"
        "  %4 = cast(ema of w) {dtype=bf16} : bf16[8, 2]\n"
        "  %5 = matmul(%3, %4) : bf16[4, 2]\n"
        "  %2 = cast(%5) {dtype=f32} : f32[4, 2]\n");
}

TEST_CASE("layers that are excepted compute in their own format") {
  const AutocastExample before = example_autocast();
  CHECK(print_graph(autocast(before.graph, computing_in(DType::bf16, {{"layers.1", "f32"}}), {})) ==
        "forward:\n"
        "  %12 = cast(x) {dtype=bf16} : bf16[4, 8]  # layers.0\n"
        "  %14 = matmul(%12, low_precision of w0) : bf16[4, 6]  # layers.0\n"
        "  %15 = relu(%14) : bf16[4, 6]  # layers.0\n"
        "  %4 = cast(%15) {dtype=f32} : f32[4, 6]  # layers.1\n"
        "  %6 = add(%4, shift) : f32[4, 6]  # layers.1\n"
        "  %8 = matmul(%6, w1) : f32[4, 3]  # layers.1\n"
        "  %9, %10, %11 = softmax_cross_entropy(%8, targets) : f64[1], f32[4], f64[1]  # loss\n");
  // The other way round: one layer in bf16; the last pattern that matches decides.
  Graph one =
      autocast(before.graph, computing_in(DType::f32, {{"layers.*", "bf16"}, {"*.1", "tf32"}}), {});
  CHECK(print_graph(one) ==
        print_graph(autocast(before.graph, computing_in(DType::bf16, {{"*.1", "f32"}}), {})));
  REQUIRE(mark_tf32(one, computing_in(DType::f32, {{"layers.*", "bf16"}, {"*.1", "tf32"}})));
  CHECK(print_graph(one).find("%8 = matmul(%6, w1) {math=tf32} : f32[4, 3]") != std::string::npos);
  CHECK(print_graph(one).find("low_precision of w0) : bf16") != std::string::npos);
}

TEST_CASE("tf32 marks f32 products but those of excepted layers") {
  const AutocastExample before = example_autocast();
  PrecisionConfig precision = computing_in(DType::f32, {{"layers.0", "f32"}});
  precision.matmul = ProductMath::tf32;
  Graph graph = before.graph;
  REQUIRE(mark_tf32(graph, precision));
  verify_graph(graph);
  CHECK(print_graph(graph) ==
        "forward:\n"
        "  %3 = matmul(x, w0) : f32[4, 6]  # layers.0\n"
        "  %4 = relu(%3) : f32[4, 6]  # layers.0\n"
        "  %6 = add(%4, shift) : f32[4, 6]  # layers.1\n"
        "  %8 = matmul(%6, w1) {math=tf32} : f32[4, 3]  # layers.1\n"
        "  %9, %10, %11 = softmax_cross_entropy(%8, targets) : f64[1], f32[4], f64[1]  # loss\n");
  Graph again = graph;
  mark_tf32(again, precision);
  CHECK(print_graph(again) == print_graph(graph));
  graph = before.graph;
  CHECK_FALSE(mark_tf32(graph, computing_in(DType::f32)));
  CHECK(print_graph(graph) == print_graph(before.graph));
}

TEST_CASE("a graph without products is left as it is") {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.add_value("x", {Shape{4}, DType::f32}, Role::input);
  b.accumulate(b.emit1("relu", {b.emit1("exp", {x})}), "sum", Role::metric);
  CHECK(print_graph(autocast(graph, computing_in(DType::bf16), {})) == print_graph(graph));
  emit_low_precision_update(graph);
  CHECK(graph.nodes.size() == 2);
}

}  // namespace
}  // namespace dltrain
