#include "passes/fuse_norms.h"

#include <optional>

#include "passes/remove_nodes.h"

namespace dltrain {
namespace {

class NormFusion {
 public:
  explicit NormFusion(Graph& graph)
      : graph_(graph), uses_(graph.count_uses()), gone_(graph.nodes.size(), false) {}

  void run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const std::string_view op = graph_.nodes[i].op->name;
      if (op == "relu") fuse_forward(i);
      if (op == "batch_norm_backward") fuse_backward(i);
    }
    remove_nodes(graph_, gone_);
  }

 private:
  // Returns the producer of `value` if it is a node of that op, with the phase and spec of
  // `reader`, and `reader` is its only reader.
  std::optional<size_t> sole_producer(std::string_view op, ValueId value,
                                      const Node& reader) const {
    const GraphValue& v = graph_.value(value);
    if (v.producer < 0 || v.role != Role::activation || uses_[static_cast<size_t>(value)] != 1) {
      return std::nullopt;
    }
    const auto index = static_cast<size_t>(v.producer);
    const Node& node = graph_.nodes[index];
    if (node.op->name != op || gone_[index] || node.phase != reader.phase ||
        !node.attributes.text("activation").empty() ||
        !(v.spec == graph_.value(reader.outputs[0]).spec)) {
      return std::nullopt;
    }
    return index;
  }

  bool made_before(ValueId value, size_t node) const {
    return graph_.value(value).producer < static_cast<int>(node);
  }

  void fuse_forward(size_t relu) {
    const Node& last = graph_.nodes[relu];
    if (graph_.value(last.outputs[0]).role != Role::activation) return;
    if (const auto norm = sole_producer("batch_norm", last.inputs[0], last)) {
      take_over(*norm, relu);
      return;
    }
    const auto sum = sole_producer("add", last.inputs[0], last);
    if (!sum) return;
    const Node& add = graph_.nodes[*sum];
    for (size_t side : {size_t{0}, size_t{1}}) {
      const ValueId residual = add.inputs[1 - side];
      const auto norm = sole_producer("batch_norm", add.inputs[side], add);
      if (!norm || !made_before(residual, *norm) ||
          !(graph_.value(residual).spec == graph_.value(add.outputs[0]).spec)) {
        continue;
      }
      graph_.nodes[*norm].inputs.push_back(residual);
      gone_[*sum] = true;
      take_over(*norm, relu);
      return;
    }
  }

  // Makes the norm write the output of the relu.
  void take_over(size_t norm, size_t relu) {
    Node& node = graph_.nodes[norm];
    node.attributes.set("activation", std::string("relu"));
    node.outputs[0] = graph_.nodes[relu].outputs[0];
    graph_.value(node.outputs[0]).producer = static_cast<int>(norm);
    gone_[relu] = true;
  }

  void fuse_backward(size_t index) {
    Node& backward = graph_.nodes[index];
    const auto mask = sole_producer("relu_backward", backward.inputs[1], backward);
    if (!mask) return;
    const ValueId y = graph_.nodes[*mask].inputs[0], dy = graph_.nodes[*mask].inputs[1];
    const int producer = graph_.value(y).producer;
    if (producer < 0) return;
    const Node& forward = graph_.nodes[static_cast<size_t>(producer)];
    const bool same =
        forward.op->name == "batch_norm" && forward.inputs.size() == 3 &&
        forward.attributes.text("activation") == "relu" &&
        forward.inputs[0] == backward.inputs[0] && forward.inputs[1] == backward.inputs[2] &&
        forward.outputs[1] == backward.inputs[3] && forward.outputs[2] == backward.inputs[4];
    if (!same) return;
    backward.inputs[1] = dy;
    backward.inputs.push_back(forward.inputs[2]);
    backward.attributes.set("activation", std::string("relu"));
    gone_[*mask] = true;
  }

  Graph& graph_;
  std::vector<int> uses_;
  std::vector<bool> gone_;
};

}  // namespace

void fuse_norms(Graph& graph) {
  NormFusion(graph).run();
}

}  // namespace dltrain
