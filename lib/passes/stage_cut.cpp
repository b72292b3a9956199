#include "passes/stage_cut.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "comm/mesh.h"
#include "graph/builder.h"
#include "passes/dead_code.h"
#include "passes/partition.h"

namespace dltrain {
namespace {

constexpr int kBoth = -1;  // on both stages, such as the state of the step

class StageCutter {
 public:
  StageCutter(Graph graph, const StageCut& cut)
      : graph_(std::move(graph)),
        slot_(graph_.next_slot()),
        old_(std::exchange(graph_.nodes, {})),
        cut_(cut),
        owner_(graph_.values.size(), kBoth),
        stage_(old_.size(), kBoth),
        builder_(graph_) {
    check_internal(graph_.groups.empty() && std::ranges::none_of(graph_.values,
                                                                 [](const GraphValue& value) {
                                                                   return value.shard.has_value();
                                                                 }),
                   "a stage cut of sharded state");
  }

  Graph run() {
    assign();
    find_crossing();
    for (Phase phase : {Phase::forward, Phase::backward, Phase::update}) emit_phase(phase);
    for (size_t i = 0; i < owner_.size(); ++i) {
      GraphValue& value = graph_.values[i];
      if (!rules_of(value.role).persistent || owner_[i] == kBoth || owner_[i] == cut_.stage) {
        continue;
      }
      value.role = Role::activation;
      value.name.clear();
    }
    graph_.update_producers();
    return eliminate_dead_code(std::move(graph_));
  }

 private:
  bool is_shared(ValueId root) const {
    return root == graph_.storage(graph_.step_state) || graph_.value(root).role == Role::constant ||
           graph_.value(root).role == Role::input;
  }

  // Records that a node of `stage` uses a value.
  void claim(ValueId id, int stage, const Node& node) {
    const ValueId root = graph_.storage(id);
    if (is_shared(root)) return;
    int& owner = owner_[static_cast<size_t>(root)];
    check_internal(owner == kBoth || owner == stage || stage == kBoth,
                   "{} ({}): {} belongs to the other stage", node.op->name, node.layer,
                   graph_.value(root).name);
    if (stage != kBoth) owner = stage;
  }

  void assign() {
    std::map<std::string, int> layers;
    bool second = false;
    for (size_t i = 0; i < old_.size(); ++i) {
      const Node& node = old_[i];
      if (node.phase == Phase::forward) {
        second = second || node.layer == cut_.second || node.layer.starts_with(cut_.second + ".");
        stage_[i] = layers.emplace(node.layer, second ? 1 : 0).first->second;
      } else if (node.phase == Phase::backward) {
        // The backward starts with the loss, which has no layer.
        stage_[i] = node.layer.empty() ? 1 : layers.at(node.layer);
      } else if (is_norm(node)) {
        continue;  // each stage adds up its own gradients
      } else {
        for (ValueId id : node.inputs) {
          if (id != kNoValue) stage_[i] = std::max(stage_[i], owner_of(id));
        }
      }
      for (ValueId id : node.outputs) claim(id, stage_[i], node);
      for (ValueId id : node.inputs) {
        if (id == kNoValue) continue;
        const bool is_state = rules_of(graph_.value(graph_.storage(id)).role).persistent;
        if (is_state || node.phase == Phase::update) claim(id, stage_[i], node);
      }
    }
    check_internal(second, "there is no layer {}", cut_.second);
  }

  int owner_of(ValueId id) const { return owner_[static_cast<size_t>(graph_.storage(id))]; }

  static bool is_norm(const Node& node) { return node.op->update == UpdateKind::norm; }

  // The stage that sends values of a phase to the other.
  static int sender_in(Phase phase) { return phase == Phase::forward ? 0 : 1; }

  // Lists the values that one stage makes and the other reads, in the order of their producers.
  void find_crossing() {
    std::set<std::pair<int, ValueId>> found;
    for (size_t i = 0; i < old_.size(); ++i) {
      for (ValueId id : old_[i].inputs) {
        const int made = id == kNoValue ? -1 : graph_.value(id).producer;
        if (made < 0) continue;
        const int from = stage_[static_cast<size_t>(made)];
        if (from == kBoth || stage_[i] == kBoth || from == stage_[i]) continue;
        const Phase phase = old_[static_cast<size_t>(made)].phase;
        check_internal(phase != Phase::update && old_[i].phase == phase && from == sender_in(phase),
                       "{} ({}) reads a value of the other stage against the order of the stages",
                       old_[i].op->name, old_[i].layer);
        found.emplace(made, id);
      }
    }
    for (const auto& [made, id] : found) {
      crossing_.push_back({id, made, old_[static_cast<size_t>(made)].phase, slot_++});
    }
  }

  struct Crossing {
    ValueId value;
    int producer;
    Phase phase;
    int64_t slot;
    ValueId received = kNoValue;
  };

  static Attributes message(const Crossing& c) {
    return message_attributes(c.slot, mesh_axes::kPipeline);
  }
  Attributes begin_of(const Crossing& c) const {
    Attributes out = message(c);
    out.set("peer", int64_t{1 - cut_.stage});
    return out;
  }

  void emit_phase(Phase phase) {
    const bool sends = cut_.stage == sender_in(phase);
    builder_.set_phase(phase);
    builder_.set_layer("pipeline");
    for (Crossing& c : crossing_) {
      if (c.phase != phase || sends) continue;
      const TensorSpec spec = graph_.value(c.value).spec;
      Attributes begin = begin_of(c);
      begin.set("shape", std::vector<int64_t>(spec.shape.begin(), spec.shape.end()));
      begin.set("dtype", std::string(dtype_name(spec.dtype)));
      const ValueId made = builder_.emit1("receive_begin", {}, begin);
      c.received = builder_.emit1("receive_end", {made}, message(c));
    }
    for (size_t i = 0; i < old_.size(); ++i) {
      if (old_[i].phase != phase || (stage_[i] != kBoth && stage_[i] != cut_.stage)) continue;
      emit_node(old_[i]);
      for (const Crossing& c : crossing_) {
        if (!sends || c.producer != static_cast<int>(i)) continue;
        builder_.emit("send_begin", {c.value}, begin_of(c));
      }
    }
    for (const Crossing& c : crossing_) {
      if (c.phase == phase && sends) builder_.emit("send_end", {c.value}, message(c));
    }
  }

  void emit_node(Node node) {
    if (is_norm(node)) return emit_norm(node);
    for (ValueId& id : node.inputs) {
      for (const Crossing& c : crossing_) {
        if (id == c.value && c.received != kNoValue) id = c.received;
      }
    }
    graph_.nodes.push_back(std::move(node));
  }

  void emit_norm(const Node& node) {
    std::vector<ValueId> own;
    std::copy_if(node.inputs.begin() + 1, node.inputs.end(), std::back_inserter(own),
                 [&](ValueId id) { return owner_of(id) == cut_.stage; });
    check_internal(!own.empty(), "a stage without parameters");
    // The slot is the same on both stages.
    const std::vector<ValueId> squares = emit_all_reduce(
        builder_, builder_.emit("sum_of_squares", own), mesh_axes::kPipeline, slot_);
    builder_.emit1("gradient_norm_of", {node.inputs[0], squares[0]});
    graph_.nodes.back().outputs = node.outputs;  // read by the rest of the update
  }

  Graph graph_;
  int64_t slot_;
  std::vector<Node> old_;
  const StageCut& cut_;
  std::vector<int> owner_;  // by storage root
  std::vector<int> stage_;  // by old node
  GraphBuilder builder_;
  std::vector<Crossing> crossing_;
};

}  // namespace

Graph stage_cut(Graph graph, const StageCut& cut) {
  return StageCutter(std::move(graph), cut).run();
}

}  // namespace dltrain
