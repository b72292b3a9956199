// Whole training steps as graphs, for tests: forward, loss, backward, norm and SGD.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "graph/builder.h"
#include "graph/reverse.h"

namespace dltrain {

// Appends backward and update to a graph whose loss_sum is `loss`.
inline void finish_step(Graph& graph, ValueId loss, double momentum = 0) {
  const auto gradients = reverse(graph, {loss}, graph.with_role(Role::parameter));
  GraphBuilder b(graph);
  b.set_phase(Phase::update);
  std::vector<ValueId> inputs{b.step_state()};
  for (const auto& g : gradients) inputs.push_back(g.gradient);
  const ValueId state = b.emit1("gradient_norm", inputs);
  inputs = {state};
  for (const auto& g : gradients) inputs.push_back(g.parameter);
  for (const auto& g : gradients) inputs.push_back(g.gradient);
  for (const auto& g : gradients) {
    if (momentum == 0) continue;
    const GraphValue p = graph.value(g.parameter);
    inputs.push_back(b.add_value(fmt::format("momentum of {}", p.name), p.spec, Role::moment));
  }
  b.emit("sgd_update", inputs,
         {{"count", static_cast<int64_t>(gradients.size())}, {"momentum", momentum}});
}

// Loss and right answers as the sums "loss" and "correct".
inline ValueId emit_loss(GraphBuilder& b, ValueId logits) {
  const ValueId targets =
      b.add_value("targets", {Shape{b.spec(logits).shape[0]}, DType::i32}, Role::input);
  const auto out = b.emit("softmax_cross_entropy", {logits, targets});
  b.accumulate(out[0], "loss", Role::metric);
  b.accumulate(out[2], "correct", Role::metric);
  return out[0];
}

// Linear layers with ReLU between them; parameters "w0", "b0", "w1", …; sizes[0] is the input's.
inline Graph mlp_step(int64_t samples, const std::vector<int64_t>& sizes, DType dtype = DType::f32,
                      double momentum = 0) {
  Graph graph;
  GraphBuilder b(graph);
  ValueId x = b.add_value("x", {Shape{samples, sizes[0]}, dtype}, Role::input);
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    b.set_layer(fmt::format("layers.{}", i));
    const ValueId w =
        b.add_value(fmt::format("w{}", i), {Shape{sizes[i + 1], sizes[i]}, dtype}, Role::parameter);
    const ValueId bias =
        b.add_value(fmt::format("b{}", i), {Shape{sizes[i + 1]}, dtype}, Role::parameter);
    if (i > 0) x = b.emit1("relu", {x});
    x = b.emit1("matmul", {x, w, bias}, {{"transpose_b", true}});
  }
  finish_step(graph, emit_loss(b, x), momentum);
  return graph;
}

// LeNet-like: two convolutions with ReLU and max-pooling on 28×28 images, two linear layers.
inline Graph convnet_step(int64_t samples) {
  Graph graph;
  GraphBuilder b(graph);
  ValueId x = b.add_value("x", {Shape{samples, 28, 28, 1}, DType::f32}, Role::input);
  const std::vector<int64_t> channels{1, 16, 32};
  for (size_t i = 0; i < 2; ++i) {
    const ValueId w =
        b.add_value(fmt::format("f{}", i), {Shape{channels[i + 1], 5, 5, channels[i]}, DType::f32},
                    Role::parameter);
    x = b.emit1("relu", {b.emit1("conv2d", {x, w}, {{"padding", std::vector<int64_t>{2, 2}}})});
    x = b.emit1("max_pool2d", {x}, {{"kernel", std::vector<int64_t>{2, 2}}});
  }
  x = b.emit1("reshape", {x}, {{"shape", std::vector<int64_t>{samples, 7 * 7 * 32}}});
  const ValueId w0 = b.add_value("w0", {Shape{120, 7 * 7 * 32}, DType::f32}, Role::parameter);
  const ValueId w1 = b.add_value("w1", {Shape{10, 120}, DType::f32}, Role::parameter);
  x = b.emit1("relu", {b.emit1("matmul", {x, w0}, {{"transpose_b", true}})});
  finish_step(graph, emit_loss(b, b.emit1("matmul", {x, w1}, {{"transpose_b", true}})));
  return graph;
}

// Returns the ops of a segment: "matmul send_begin ".
inline std::string ops(const Graph& graph, Phase phase) {
  std::string out;
  for (const Node& node : graph.nodes) {
    if (node.phase == phase) out += std::string(node.op->name) + " ";
  }
  return out;
}

}  // namespace dltrain
