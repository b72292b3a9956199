#include "passes/fuse_norms.h"

#include <algorithm>
#include <optional>

namespace dltrain {
namespace {

class NormFusion {
 public:
  explicit NormFusion(Graph& graph)
      : graph_(graph), readers_(graph.readers()), gone_(graph.nodes.size(), false) {}

  void fuse_batch_norms() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const std::string_view op = graph_.nodes[i].op->name;
      if (op == "relu") fuse_forward(i);
      if (op == "batch_norm_backward") fuse_backward(i);
    }
    graph_.remove_nodes(gone_);
  }

  void join_row_norms(bool across_blocks) {
    across_blocks_ = across_blocks;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const std::string_view op = graph_.nodes[i].op->name;
      if (op == "layer_norm" || op == "rms_norm") {
        take_sum(i);
        take_casts(i);
      } else if (op == "layer_norm_backward" || op == "rms_norm_backward") {
        take_gradient(i);
        take_residual(i);
        take_gradient_sum(i);
        take_casts(i);
      }
    }
    for (Node& node : graph_.nodes) replace_inputs(node, same_);
    graph_.remove_nodes(gone_);
  }

 private:
  static size_t at(ValueId id) { return static_cast<size_t>(id); }
  const TensorSpec& spec(ValueId id) const { return graph_.value(id).spec; }
  bool is_temporary(ValueId id) const {
    const GraphValue& value = graph_.value(id);
    return value.role == Role::activation && value.storage_of == kNoValue && value.producer >= 0;
  }
  bool made_before(ValueId value, size_t node) const {
    return graph_.value(value).producer < static_cast<int>(node);
  }
  // Returns the node of that op and of the phase of `reader` that produces `id`, or nullptr.
  const Node* producer(std::string_view op, ValueId id, const Node& reader) const {
    if (!is_temporary(id)) return nullptr;
    const Node& node = graph_.nodes[at(graph_.value(id).producer)];
    return node.op->name == op && node.phase == reader.phase ? &node : nullptr;
  }
  // Returns the index of that node if `reader` is its only reader and has a result of that spec.
  std::optional<size_t> sole_producer(std::string_view op, ValueId id, const Node& reader) const {
    const Node* node = producer(op, id, reader);
    const bool sole = node != nullptr && readers_[at(id)].size() == 1 &&
                      node->attributes.text("activation").empty() &&
                      spec(id) == spec(reader.outputs[0]);
    return sole ? std::optional(at(graph_.value(id).producer)) : std::nullopt;
  }
  std::vector<size_t> readers(ValueId id) const {
    std::vector<size_t> out(readers_[at(id)].begin(), readers_[at(id)].end());
    std::erase_if(out, [&](size_t i) { return gone_[i]; });
    return out;
  }
  void give(size_t node, ValueId id) { graph_.value(id).producer = static_cast<int>(node); }

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
      if (!norm || !made_before(residual, *norm) || spec(residual) != spec(add.outputs[0])) {
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
    give(norm, node.outputs[0]);
    gone_[relu] = true;
  }

  void fuse_backward(size_t index) {
    Node& backward = graph_.nodes[index];
    const auto mask = sole_producer("relu_backward", backward.inputs[1], backward);
    if (!mask) return;
    const ValueId y = graph_.nodes[*mask].inputs[0], dy = graph_.nodes[*mask].inputs[1];
    const Node* forward = graph_.producer_of(y);
    const bool same =
        forward != nullptr && forward->op->name == "batch_norm" && forward->inputs.size() == 3 &&
        forward->attributes.text("activation") == "relu" &&
        forward->inputs[0] == backward.inputs[0] && forward->inputs[1] == backward.inputs[2] &&
        forward->outputs[1] == backward.inputs[3] && forward->outputs[2] == backward.inputs[4];
    if (!same) return;
    backward.inputs[1] = dy;
    backward.inputs.push_back(forward->inputs[2]);
    backward.attributes.set("activation", std::string("relu"));
    gone_[*mask] = true;
  }

  // Returns the 16-bit value of which `id` is the f32 form, or else `id`; the cast goes if only
  // `reader` reads it.
  ValueId narrow(ValueId id, size_t reader) {
    const Node* cast = producer("cast", id, graph_.nodes[reader]);
    if (cast == nullptr || spec(id).dtype != DType::f32 ||
        !is_low_precision(spec(cast->inputs[0]).dtype)) {
      return id;
    }
    if (readers(id).size() == 1) gone_[at(graph_.value(id).producer)] = true;
    return cast->inputs[0];
  }

  bool one_block(const Node& a, const Node& b) const {
    return across_blocks_ || a.block < 0 || b.block < 0 || a.block == b.block;
  }

  // The operands of an addition: one in the dtype of its result, and one that may be in 16 bits.
  struct Addends {
    ValueId wide, low;
  };

  // Removes the addition that makes `id` and returns its operands, if the norm can do it: both are
  // temporary, of the spec of the result, and of a block that the norm may be joined with.
  std::optional<Addends> take_add(ValueId id, size_t norm) {
    const Node* add = producer("add", id, graph_.nodes[norm]);
    if (add == nullptr || !one_block(*add, graph_.nodes[norm])) return {};
    const ValueId a = add->inputs[0], b = add->inputs[1];
    if (!is_temporary(a) || !is_temporary(b) || spec(a) != spec(id) || spec(b) != spec(id)) {
      return {};
    }
    const size_t sum = at(graph_.value(id).producer);
    const ValueId low_a = narrow(a, sum);
    const Addends out = low_a != a ? Addends{b, low_a} : Addends{a, narrow(b, sum)};
    gone_[sum] = true;  // narrow() counts it as a reader
    return out;
  }

  // x = a + b is computed by the norm if nothing reads it before.
  void take_sum(size_t index) {
    Node& norm = graph_.nodes[index];
    const ValueId x = norm.inputs[0];
    const std::vector<size_t> all = readers(x);
    if (!std::ranges::all_of(all, [&](size_t reader) { return reader >= index; })) return;
    const auto addends = take_add(x, index);
    if (!addends) return;
    norm.inputs[0] = addends->wide;
    norm.inputs.push_back(addends->low);
    norm.outputs.push_back(x);
    give(index, x);
  }

  void take_gradient(size_t index) {
    Node& norm = graph_.nodes[index];
    norm.inputs[1] = narrow(norm.inputs[1], index);
  }

  // dy = r + dy' is computed by the gradient if nothing else reads dy, and it adds nothing to dx.
  void take_gradient_sum(size_t index) {
    Node& norm = graph_.nodes[index];
    const ValueId dy = norm.inputs[1];
    const size_t residual = norm.op->name == "rms_norm_backward" ? 4 : 5;
    if (norm.inputs.size() > residual || readers(dy).size() != 1 ||
        spec(dy) != spec(norm.inputs[0])) {
      return;
    }
    const auto addends = take_add(dy, index);
    if (!addends) return;
    norm.inputs[1] = addends->low;
    norm.inputs.push_back(addends->wide);
    norm.attributes.set("adds_to_dy", true);
  }

  // s = r + dx is computed by the gradient if r is there by then and nothing else reads dx.
  void take_residual(size_t index) {
    Node& norm = graph_.nodes[index];
    const ValueId dx = norm.outputs[0];
    const std::vector<size_t> all = readers(dx);
    if (!is_temporary(dx) || all.size() != 1) return;
    const Node& add = graph_.nodes[all[0]];
    if (add.op->name != "add" || add.phase != norm.phase) return;
    const ValueId residual = add.inputs[add.inputs[0] == dx ? 1 : 0], sum = add.outputs[0];
    if (residual == dx || !is_temporary(residual) || !is_temporary(sum) ||
        spec(residual) != spec(dx) || spec(sum) != spec(dx) || !made_before(residual, index)) {
      return;
    }
    norm.inputs.push_back(residual);
    norm.outputs[0] = sum;
    gone_[all[0]] = true;
    give(index, sum);
  }

  // The norm writes its f32 result in 16 bits too, or instead if nothing else reads it.
  void take_casts(size_t index) {
    Node& norm = graph_.nodes[index];
    const ValueId result = norm.outputs[0];
    if (!is_temporary(result) || spec(result).dtype != DType::f32) return;
    ValueId low = kNoValue;
    for (size_t reader : readers(result)) {
      const Node& cast = graph_.nodes[reader];
      if (cast.op->same_elements != SameElements::cast) continue;  // a message has no outputs
      const ValueId y = cast.outputs[0];
      if (cast.phase != norm.phase || !is_temporary(y) || !is_low_precision(spec(y).dtype) ||
          (low != kNoValue && spec(low) != spec(y))) {
        continue;
      }
      if (low == kNoValue) {
        low = y;
        give(index, y);
      } else {
        same_[y] = low;
        readers_[at(low)].insert(readers_[at(low)].end(), readers_[at(y)].begin(),
                                 readers_[at(y)].end());
      }
      gone_[reader] = true;
    }
    if (low == kNoValue) return;
    norm.attributes.set("output_dtype", std::string(dtype_name(spec(low).dtype)));
    if (norm.op->name.ends_with("_backward")) {
      norm.outputs.push_back(low);
      return;
    }
    norm.outputs[0] = low;
    if (readers(result).empty()) return;
    norm.attributes.set("wide", true);
    norm.outputs.push_back(result);
  }

  Graph& graph_;
  bool across_blocks_ = true;
  std::vector<std::vector<int>> readers_;  // by value: the nodes that read it
  std::vector<bool> gone_;
  Replacements same_;  // casts of a value to one dtype: the first is read instead
};

}  // namespace

void fuse_norms(Graph& graph) {
  NormFusion(graph).fuse_batch_norms();
}

void join_norms(Graph& graph, bool across_blocks) {
  NormFusion(graph).join_row_norms(across_blocks);
}

}  // namespace dltrain
