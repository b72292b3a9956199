#include "passes/pair_convolutions.h"

#include <algorithm>
#include <optional>

#include "passes/remove_nodes.h"

namespace dltrain {
namespace {

class Pairing {
 public:
  explicit Pairing(Graph& graph)
      : graph_(graph), uses_(graph.count_uses()), gone_(graph.nodes.size(), false) {}

  void run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const std::string_view op = graph_.nodes[i].op->name;
      if (op == "batch_norm") take_statistics(i);
      if (op == "batch_norm_inference") join(i);
    }
    remove_nodes(graph_, gone_);
  }

 private:
  // Returns the producer of the norm's input if it is a convolution without bias and activation.
  std::optional<size_t> convolution_before(const Node& norm) const {
    const GraphValue& x = graph_.value(norm.inputs[0]);
    if (x.producer < 0 || x.role != Role::activation) return std::nullopt;
    const auto index = static_cast<size_t>(x.producer);
    const Node& node = graph_.nodes[index];
    const bool bare = node.op->name == "conv2d" && node.attributes.text("activation").empty() &&
                      (node.inputs.size() == 2 || node.inputs[2] == kNoValue);
    if (!bare || node.phase != norm.phase || node.once_a_step != norm.once_a_step) {
      return std::nullopt;
    }
    return index;
  }

  void take_statistics(size_t index) {
    Node& norm = graph_.nodes[index];
    const auto found = convolution_before(norm);
    if (!found) return;
    Node& convolution = graph_.nodes[*found];
    convolution.op = find_op("conv2d_moments");
    convolution.inputs.resize(2);
    const ValueId statistics[] = {norm.outputs[1], norm.outputs[2]};
    convolution.outputs.insert(convolution.outputs.end(), std::begin(statistics),
                               std::end(statistics));
    norm.op = find_op("batch_norm_inference");
    norm.inputs.insert(norm.inputs.begin() + 3, std::begin(statistics), std::end(statistics));
    norm.outputs.resize(1);
    for (ValueId id : statistics) graph_.value(id).producer = static_cast<int>(*found);
  }

  void join(size_t index) {
    Node& norm = graph_.nodes[index];
    const auto found = convolution_before(norm);
    if (!found || uses_[static_cast<size_t>(norm.inputs[0])] != 1 || !may_move(*found, index)) {
      return;
    }
    const Node& convolution = graph_.nodes[*found];
    Attributes attributes = convolution.attributes;
    attributes.set("epsilon", norm.attributes.number("epsilon", 1e-5));
    const std::string activation = norm.attributes.text("activation");
    if (!activation.empty()) attributes.set("activation", activation);
    norm.op = find_op("conv2d_batch_norm");
    norm.attributes = std::move(attributes);
    norm.inputs.erase(norm.inputs.begin());
    norm.inputs.insert(norm.inputs.begin(), convolution.inputs.begin(),
                       convolution.inputs.begin() + 2);
    gone_[*found] = true;
  }

  // Returns true if no node between them writes state, which the convolution might read.
  bool may_move(size_t from, size_t to) const {
    return std::none_of(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(from),
                        graph_.nodes.begin() + static_cast<std::ptrdiff_t>(to),
                        [](const Node& node) { return node.op->has_effect; });
  }

  Graph& graph_;
  std::vector<int> uses_;
  std::vector<bool> gone_;
};

}  // namespace

void pair_convolutions(Graph& graph) {
  Pairing(graph).run();
}

}  // namespace dltrain
