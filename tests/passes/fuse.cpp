#include "passes/fuse.h"

#include <cmath>

#include "catch.h"
#include "graph/builder.h"
#include "graph/reverse.h"
#include "max_or_inf.h"
#include "passes/dead_code.h"
#include "random_graph.h"
#include "run_graph.h"
#include "state_spec.h"

namespace dltrain {
namespace {

const TensorSpec kMatrix{Shape{4, 4}, DType::f32};

struct FuseExample {
  Graph graph;
  GraphBuilder b{graph};
  ValueId x = b.add_value("x", kMatrix, Role::input);
  ValueId w = b.add_value("w", kMatrix, Role::parameter);

  // Keeps a value alive.
  void want(ValueId value, const char* name = "sum") {
    b.accumulate(b.emit1("identity", {value}), name, Role::metric);
  }
};

TEST_CASE("an activation that alone reads a matmul or a convolution becomes part of it") {
  FuseExample e;
  const ValueId images = e.b.add_value("images", {Shape{2, 5, 5, 1}, DType::f32}, Role::input);
  const ValueId filters =
      e.b.add_value("filters", {Shape{3, 3, 3, 1}, DType::f32}, Role::parameter);
  e.b.set_layer("layers.0");
  const ValueId product = e.b.emit1("matmul", {e.x, e.w}, {{"transpose_b", true}});
  e.b.set_layer("layers.1");
  const ValueId rectified = e.b.emit1("relu", {product});
  e.b.set_layer("");
  e.want(rectified, "a");
  e.want(e.b.emit1("silu", {e.b.emit1("conv2d", {images, filters})}), "b");
  CHECK(print_graph(e.graph) ==
        "forward:\n"
        "  %4 = matmul(x, w) {transpose_b=true} : f32[4, 4]  # layers.0\n"
        "  %5 = relu(%4) : f32[4, 4]  # layers.1\n"
        "  a = identity(%5) : f32[4, 4]\n"
        "  %7 = conv2d(images, filters) : f32[2, 3, 3, 3]\n"
        "  %8 = silu(%7) : f32[2, 3, 3, 3]\n"
        "  b = identity(%8) : f32[2, 3, 3, 3]\n");
  CHECK(print_graph(fuse(e.graph)) ==
        "forward:\n"
        "  %5 = matmul(x, w) {activation=relu, transpose_b=true} : f32[4, 4]  # layers.0\n"
        "  a = identity(%5) : f32[4, 4]\n"
        "  %8 = conv2d(images, filters) {activation=silu} : f32[2, 3, 3, 3]\n"
        "  b = identity(%8) : f32[2, 3, 3, 3]\n");
}

TEST_CASE("an activation stays when the backward reads its input, or another phase does") {
  FuseExample e;
  const ValueId product = e.b.emit1("matmul", {e.x, e.w});
  e.want(e.b.emit1("gelu", {product}), "a");
  e.b.set_phase(Phase::backward);
  e.want(e.b.emit1("gelu_backward", {product, e.x}), "b");
  const Graph two_readers = fuse(e.graph);
  CHECK(print_graph(two_readers) == print_graph(e.graph));

  FuseExample other;
  const ValueId forward = other.b.emit1("matmul", {other.x, other.w});
  other.b.set_phase(Phase::backward);
  other.want(other.b.emit1("relu", {forward}));
  CHECK(print_graph(fuse(other.graph)) == print_graph(other.graph));

  FuseExample sum;  // the sum over micro-steps must be of relu(x·w), not relu of the sum
  sum.b.accumulate(sum.b.emit1("relu", {sum.b.emit1("matmul", {sum.x, sum.w})}), "sum",
                   Role::metric);
  CHECK(print_graph(fuse(sum.graph)) == print_graph(sum.graph));
}

TEST_CASE(
    "with join_gelu a product in 16 bits ends with GELU, and its gradient with the derivative") {
  Graph graph;
  GraphBuilder b(graph);
  const TensorSpec matrix{Shape{8, 8}, DType::bf16};
  const ValueId x = b.add_value("x", matrix, Role::input);
  const ValueId w = b.add_value("w", matrix, Role::low_precision);
  const ValueId v = b.add_value("v", matrix, Role::low_precision);
  const ValueId h = b.emit1("matmul", {x, w}, {{"transpose_b", true}});
  const ValueId y = b.emit1("matmul", {b.emit1("gelu_tanh", {h}), v}, {{"transpose_b", true}});
  b.set_phase(Phase::backward);
  const ValueId dh = b.emit1("gelu_tanh_backward", {h, b.emit1("matmul", {y, v})});
  const auto want = [&](ValueId value, const char* name) {
    b.accumulate(b.emit1("reduce", {value}, {{"kind", "sum"}, {"axes", std::vector<int64_t>{0}}}),
                 name, Role::metric);
  };
  want(b.emit1("matmul", {dh, w}), "dx");
  CHECK(print_graph(fuse(graph)) == print_graph(graph));
  const std::string joined =
      "forward:\n"
      "  %4, %3 = matmul_gelu(x, w) {transpose_b=true} : bf16[8, 8], bf16[8, 8]\n"
      "  %5 = matmul(%4, v) {transpose_b=true} : bf16[8, 8]\n"
      "backward:\n"
      "  %7 = matmul_gelu_backward(%5, v, %3) : bf16[8, 8]\n"
      "  %8 = matmul(%7, w) : bf16[8, 8]\n";
  CHECK(print_graph(fuse(graph, {.join_gelu = true})).substr(0, joined.size()) == joined);
  // A second reader of the gradient needs it without the derivative.
  want(graph.nodes[3].outputs[0], "dy");
  CHECK(print_graph(fuse(graph, {.join_gelu = true})).find("matmul_gelu_backward") ==
        std::string::npos);
}

TEST_CASE("element-wise nodes whose results stay among themselves become one node") {
  FuseExample e;
  const ValueId shared = e.b.emit1("exp", {e.x});
  const ValueId scaled = e.b.emit1("affine", {shared}, {{"scale", 0.1}, {"shift", -2.0}});
  const ValueId product = e.b.emit1("mul", {scaled, e.w});
  const ValueId read_elsewhere = e.b.emit1("tanh", {e.w});
  e.want(e.b.emit1("add", {e.b.emit1("sub", {product, shared}), read_elsewhere}), "a");
  e.want(read_elsewhere, "b");
  CHECK(print_graph(fuse(e.graph)) ==
        "forward:\n"
        "  %5 = tanh(w) : f32[4, 4]\n"
        "  %7 = fused_elementwise(x, w, %5) {program=exp(0); affine(3; 0.1, -2); mul(4, 1); "
        "sub(5, 3); add(6, 2)} : f32[4, 4]\n"
        "  a = identity(%7) : f32[4, 4]\n"
        "  b = identity(%5) : f32[4, 4]\n");
}

TEST_CASE("casts between f32 and 16 bits belong to a group, casts alone are none") {
  FuseExample e;
  const ValueId low = e.b.add_value("low", {kMatrix.shape, DType::bf16}, Role::input);
  const ValueId wide = e.b.emit1("cast", {low}, {{"dtype", "f32"}});
  const ValueId sum = e.b.emit1("add", {wide, e.x});
  const ValueId rounded = e.b.emit1("cast", {e.b.emit1("exp", {sum})}, {{"dtype", "bf16"}});
  e.want(e.b.emit1("cast", {rounded}, {{"dtype", "f64"}}), "a");
  e.want(sum, "b");
  const ValueId alone = e.b.emit1("cast", {e.w}, {{"dtype", "bf16"}});
  e.want(e.b.emit1("cast", {alone}, {{"dtype", "f32"}}), "c");
  const std::string text = print_graph(fuse(e.graph));
  INFO(text);
  CHECK(text.find("fused_elementwise(low, x) {output_dtype=f32, program=add(0, 1)} : "
                  "f32[4, 4]") != text.npos);
  CHECK(text.find("{output_dtype=bf16, program=exp(0)} : bf16[4, 4]") != text.npos);
  CHECK(text.find("cast(w) {dtype=bf16}") != text.npos);
}

TEST_CASE("a group belongs to the block of its nodes, and never to two") {
  FuseExample e;
  const ValueId low = e.b.add_value("low", {kMatrix.shape, DType::bf16}, Role::input);
  const ValueId wide = e.b.emit1("cast", {low}, {{"dtype", "f32"}});  // belongs nowhere
  ValueId sum, last;
  {
    const GraphBuilder::Block first(e.b);
    sum = e.b.emit1("add", {wide, e.x});
  }
  {
    const GraphBuilder::Block second(e.b);
    last = e.b.emit1("tanh", {e.b.emit1("exp", {sum})});
  }
  e.want(last);
  const Graph fused = fuse(e.graph);
  REQUIRE(fused.nodes.size() == 3);
  CHECK(fused.nodes[0].op->name == "fused_elementwise");
  CHECK(fused.nodes[0].block == 0);
  CHECK(fused.nodes[1].op->name == "fused_elementwise");
  CHECK(fused.nodes[1].block == 1);
}

TEST_CASE("sums, broadcasts, casts to f64 and other phases end a group") {
  FuseExample e;
  const ValueId row = e.b.add_value("row", {Shape{4}, DType::f32}, Role::parameter);
  const ValueId first = e.b.emit1("add", {e.b.emit1("exp", {e.x}), row});  // broadcast
  const ValueId wide = e.b.emit1("cast", {first}, {{"dtype", "f64"}});
  e.b.accumulate(e.b.emit1("sqrt", {e.b.emit1("square", {wide})}), "sum", Role::metric);
  const ValueId last = e.b.emit1("exp", {e.w});
  e.b.set_phase(Phase::backward);
  e.want(e.b.emit1("sqrt", {last}), "other");
  CHECK(print_graph(fuse(e.graph)) == print_graph(e.graph));
}

TEST_CASE("a read of state is not carried past the write of that state") {
  FuseExample e;
  e.b.set_phase(Phase::update);
  const ValueId g = e.b.add_value("g", kMatrix, Role::gradient);
  const ValueId old = e.b.emit1("exp", {e.w});
  const ValueId state = e.b.emit1("gradient_norm", {e.b.step_state(), g});
  const ValueId now = e.b.emit("sgd_update", {state, e.w, g}, {{"count", int64_t{1}}})[0];
  e.want(e.b.emit1("add", {e.b.emit1("sqrt", {now}), old}));
  CHECK(print_graph(fuse(e.graph)) ==
        "update:\n"
        "  %3 = exp(w) : f32[4, 4]\n"
        "  %5 = gradient_norm(step_state, g) : " +
            kStateSpec +
            "\n"
            "  %6 = sgd_update(%5, w, g) {count=1} : f32[4, 4]\n"
            "  %8 = fused_elementwise(%6, %3) {program=sqrt(0); add(2, 1)} : f32[4, 4]\n"
            "  sum = identity(%8) : f32[4, 4]\n");
}

TEST_CASE("a group has at most sixteen inputs") {
  FuseExample e;
  ValueId sum = e.x;
  for (int i = 0; i < 20; ++i) {
    const ValueId next = e.b.add_value(fmt::format("x{}", i), kMatrix, Role::input);
    sum = e.b.emit1("add", {sum, next});
  }
  e.want(sum);
  const Graph fused = fuse(e.graph);
  REQUIRE(fused.nodes.size() == 3);
  CHECK(fused.nodes[0].inputs.size() == 6);
  CHECK(fused.nodes[1].inputs.size() == 16);
  CHECK(print_graph(fuse(fused)) == print_graph(fused));
}

double largest_difference(const Graph& a, const Graph& b) {
  const auto left = results_of(a), right = results_of(b);
  double most = 0;
  REQUIRE(left.size() == right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    for (size_t k = 0; k < left[i].size(); ++k) {
      CHECK(std::isfinite(left[i][k]));
      const double difference = std::abs(left[i][k] - right[i][k]);
      most = max_or_inf(most, difference / (1 + std::abs(left[i][k])));
    }
  }
  return most;
}

TEST_CASE("the backward of a gated unit computes its gate anew") {
  FuseExample e;
  const ValueId gate = e.b.emit1("matmul", {e.x, e.w}), up = e.b.emit1("matmul", {e.w, e.x});
  const ValueId loss = e.b.emit1("mul", {e.b.emit1("silu", {gate}), up});
  e.want(loss, "loss");
  e.b.set_phase(Phase::backward);
  e.want(e.b.emit1("mul", {e.x, e.graph.nodes[2].outputs[0]}), "dup");
  e.want(e.b.emit1("silu_backward", {gate, e.b.emit1("mul", {e.x, up})}), "dgate");
  CHECK(print_graph(fuse(e.graph, {.recompute_gates = true})) ==
        "forward:\n"
        "  %2 = matmul(x, w) : f32[4, 4]\n"
        "  %3 = matmul(w, x) : f32[4, 4]\n"
        "  %5 = fused_elementwise(%2, %3) {program=silu(0); mul(2, 1)} : f32[4, 4]\n"
        "  loss = identity(%5) : f32[4, 4]\n"
        "backward:\n"
        "  %7 = fused_elementwise(%2, x) {program=silu(0); mul(1, 2)} : f32[4, 4]\n"
        "  dup = identity(%7) : f32[4, 4]\n"
        "  %10 = fused_elementwise(x, %3, %2) {program=mul(0, 1); silu_backward(2, 3)} "
        ": f32[4, 4]\n"
        "  dgate = identity(%10) : f32[4, 4]\n");
  // A gate that a product of the backward reads is kept.
  FuseExample kept;
  const ValueId x = kept.b.emit1("matmul", {kept.x, kept.w});
  const ValueId y = kept.b.emit1("silu", {x});
  kept.want(y, "y");
  kept.b.set_phase(Phase::backward);
  kept.want(kept.b.emit1("matmul", {y, kept.w}), "dw");
  kept.want(kept.b.emit1("silu_backward", {x, kept.w}), "dx");
  Graph same = kept.graph;
  recompute_gates(same);
  CHECK(print_graph(same) == print_graph(kept.graph));
}

TEST_CASE("passes keep the results of random training graphs") {
  int fused_nodes = 0, epilogues = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    const bool doubles = seed % 2 == 0;
    RandomGraph random(seed, doubles ? DType::f64 : DType::f32);
    Graph graph = random.graph();
    reverse(graph, random.losses(), random.parameters());
    const Graph lean = eliminate_dead_code(graph);
    CHECK(largest_difference(graph, lean) == 0);
    Graph gated = lean;
    recompute_gates(gated);
    verify_graph(gated);
    CHECK(largest_difference(lean, gated) == 0);
    const Graph fused = fuse(lean);
    // The reference engine computes in double: only what a fused node no longer rounds to f32
    // between two steps may differ.
    CHECK(largest_difference(lean, fused) <= (doubles ? 0.0 : 1e-6));
    CHECK(print_graph(fuse(fused)) == print_graph(fused));
    CHECK(print_graph(eliminate_dead_code(fused)) == print_graph(fused));
    CHECK(fused.nodes.size() < lean.nodes.size());
    for (const Node& node : fused.nodes) {
      fused_nodes += node.op->name == "fused_elementwise";
      epilogues += node.attributes.has("activation");
    }
  }
  CHECK(fused_nodes > 40);
  CHECK(epilogues > 10);
}

}  // namespace
}  // namespace dltrain
