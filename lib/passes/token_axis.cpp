#include "passes/token_axis.h"

#include <algorithm>

#include "base/error.h"

namespace dltrain {
namespace {

constexpr int kMixes = -2;

class Walk {
 public:
  explicit Walk(const Graph& graph) : graph_(graph), axes_(graph.values.size(), kNoTokenAxis) {}

  std::vector<int> run(ValueId tokens) {
    axes_[static_cast<size_t>(tokens)] = 1;
    for (const Node& node : graph_.nodes) {
      const int axis = axis_of(node);
      if (axis == kMixes) {
        throw Error(
            ExitCode::usage,
            fmt::format("{} mixes tokens, so this model cannot generate text", node.op->name),
            node.layer);
      }
      for (ValueId id : node.outputs) {
        const bool counts = axis != kNoTokenAxis && axis < shape(id).rank();
        axes_[static_cast<size_t>(id)] = counts ? axis : kNoTokenAxis;
      }
    }
    return std::move(axes_);
  }

 private:
  const Shape& shape(ValueId id) const { return graph_.value(id).spec.shape; }
  int axis(ValueId id) const {
    return id == kNoValue ? kNoTokenAxis : axes_[static_cast<size_t>(id)];
  }
  // Returns the axis of the first input if no other input has tokens.
  int first(const Node& node) const {
    const bool others = std::any_of(node.inputs.begin() + 1, node.inputs.end(),
                                    [&](ValueId id) { return axis(id) != kNoTokenAxis; });
    return others ? kMixes : axis(node.inputs[0]);
  }
  // The same, for ops that work along the last axis.
  int first_but_last(const Node& node) const {
    const int at = first(node);
    return at == shape(node.inputs[0]).rank() - 1 ? kMixes : at;
  }

  int axis_of(const Node& node) const {
    const std::string_view op = node.op->name;
    if (op == "token_positions") return 1;
    if (op == "slot_state" || op == "slot_state_update") return kNoTokenAxis;
    if (std::all_of(node.inputs.begin(), node.inputs.end(),
                    [&](ValueId id) { return axis(id) == kNoTokenAxis; })) {
      return kNoTokenAxis;
    }
    if (op == "cached_attention") return tokens_at(node, 1, node.inputs.size() - 5);
    // Attention to keys without tokens of the text, such as a source.
    if (op == "attention")
      return first(node) == 1 && shape(node.inputs[0]).rank() == 4 ? 1 : kMixes;
    if (op == "recurrent")
      return node.attributes.boolean("reverse") ? kMixes : tokens_at(node, 1, 1);
    if (op == "embedding")
      return axis(node.inputs[1]) == kNoTokenAxis ? axis(node.inputs[0]) : kMixes;
    if (op == "rotary" || op == "sinusoidal_positions") return tokens_at(node, 1, 1);
    if (op == "matmul")
      return node.attributes.boolean("transpose_a") ? kMixes : first_but_last(node);
    if (op == "layer_norm" || op == "rms_norm" || op == "softmax" || op == "log_softmax" ||
        op == "batch_norm_inference") {
      return first_but_last(node);
    }
    if (op == "dropout" || op == "cast") return first(node);
    if (op == "reshape") return reshaped(node);
    if (op == "transpose") return transposed(node);
    if (op == "slice" || op == "pad") return bordered(node);
    if (op == "concat") return joined(node);
    if (node.op->elementwise || op == "broadcast") return elementwise(node);
    return kMixes;
  }

  // Returns `at` if the first `count` inputs count tokens along it.
  int tokens_at(const Node& node, int at, size_t count) const {
    for (size_t i = 0; i < count; ++i) {
      if (axis(node.inputs[i]) != at) return kMixes;
    }
    return at;
  }

  int reshaped(const Node& node) const {
    const int from = axis(node.inputs[0]);
    const Shape &x = shape(node.inputs[0]), &y = shape(node.outputs[0]);
    const auto fits = [&](int at) {
      return at < y.rank() && y.elements(0, at) == x.elements(0, from) && y[at] == x[from];
    };
    if (fits(from)) return from;  // prefer it: extents of 1 can fit several axes
    for (int i = 0; i < y.rank(); ++i) {
      if (fits(i)) return i;
    }
    return kMixes;
  }

  int transposed(const Node& node) const {
    const auto permutation = node.attributes.integers("permutation");
    const auto at = std::find(permutation.begin(), permutation.end(), axis(node.inputs[0]));
    return static_cast<int>(at - permutation.begin());
  }

  int bordered(const Node& node) const {
    const int at = axis(node.inputs[0]);
    const auto before = node.attributes.integers("before"),
               after = node.attributes.integers("after");
    return before[static_cast<size_t>(at)] == 0 && after[static_cast<size_t>(at)] == 0 ? at
                                                                                       : kMixes;
  }

  int joined(const Node& node) const {
    const int at = axis(node.inputs[0]);
    for (ValueId id : node.inputs) {
      if (axis(id) != at) return kMixes;
    }
    return node.attributes.integer("axis") == at ? kMixes : at;
  }

  // Operands are aligned at their last axes; operands without tokens must have extent 1 there.
  int elementwise(const Node& node) const {
    const int rank = shape(node.outputs[0]).rank();
    int at = kNoTokenAxis;
    for (ValueId id : node.inputs) {
      if (axis(id) == kNoTokenAxis) continue;
      const int here = axis(id) + rank - shape(id).rank();
      if (at != kNoTokenAxis && here != at) return kMixes;
      at = here;
    }
    for (ValueId id : node.inputs) {
      const int own = at - (rank - shape(id).rank());
      if (axis(id) == kNoTokenAxis && own >= 0 && shape(id)[own] != 1) return kMixes;
    }
    return at;
  }

  const Graph& graph_;
  std::vector<int> axes_;
};

}  // namespace

std::vector<int> token_axes(const Graph& graph, ValueId tokens) {
  return Walk(graph).run(tokens);
}

}  // namespace dltrain
