#include "passes/overlap.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "comm/mesh.h"
#include "graph/slots.h"
#include "passes/verify_pass.h"
#include "passes/zero_parts.h"

namespace dltrain {
namespace {

bool between_ranks_of_a_stage(const Node& node) {
  return node.op->message != MessageKind::none && node.op->message != MessageKind::send &&
         node.op->message != MessageKind::receive;
}

class Overlap {
 public:
  explicit Overlap(Graph graph) : graph_(std::move(graph)), readers_(graph_.readers()) {}

  Graph run() {
    find_small_sums();
    int chunk = 0;
    for (Node& node : hoisted(delayed(std::exchange(graph_.nodes, {})))) {
      if (node.phase == Phase::update || node.chunk != chunk) end_backward();
      chunk = node.chunk;
      const auto small = small_.find(node.outputs.empty() ? kNoValue : node.outputs[0]);
      if (small != small_.end()) {
        parts_of_sums_[static_cast<size_t>(small->second)].push_back(std::move(node));
      } else if (node.phase == Phase::backward && is_gradient_alone(node)) {
        waiting_.push_back(std::move(node));
      } else {
        append(std::move(node));
      }
    }
    end_backward();
    graph_.update_producers();
    verify_pass(graph_);
    return std::move(graph_);
  }

 private:
  // Finds the sums of gradients of biases and scales, which become one message.
  void find_small_sums() {
    for (const Node& node : graph_.nodes) phases_.push_back(node.phase);
    std::set<ValueId> continued;  // sums to which others are added, such as those of tied weights
    for (const GraphValue& value : graph_.values) continued.insert(value.storage_of);
    for (size_t i = 0; i + 2 < graph_.nodes.size(); ++i) {
      const Node* const parts = &graph_.nodes[i];  // begin, end, copy
      const GraphValue& x = graph_.value(parts[0].inputs.empty() ? 0 : parts[0].inputs[0]);
      const bool is_small =
          parts[0].phase == Phase::backward && begins_slot(parts[0]) &&
          parts[0].op->message == MessageKind::all_reduce && parts[0].inputs.size() == 1 &&
          x.spec.shape.rank() == 1 && x.spec.dtype == DType::f32 && x.role == Role::activation &&
          parts[1].inputs == parts[0].outputs && parts[2].op->same_elements == SameElements::copy &&
          parts[2].inputs[0] == parts[1].outputs[0] && is_gradient_alone(parts[2]) &&
          !continued.contains(parts[2].outputs[0]) &&
          (small_.empty() || parts[0].attributes.text(kOver) == small_over_);
      if (!is_small) continue;
      small_over_ = parts[0].attributes.text(kOver);
      for (int part = 0; part < 3; ++part) small_[parts[part].outputs[0]] = part;
    }
  }

  // Appends what waits. The parts of the small sums become a begin, an end, and copies.
  void end_backward() {
    if (parts_of_sums_[0].empty()) {
      run_waiting(0);
      return;
    }
    for (int part : {0, 1}) {
      auto& nodes = parts_of_sums_[static_cast<size_t>(part)];
      Node all = std::move(nodes[0]);
      for (size_t i = 1; i < nodes.size(); ++i) {
        all.inputs.insert(all.inputs.end(), nodes[i].inputs.begin(), nodes[i].inputs.end());
        all.outputs.insert(all.outputs.end(), nodes[i].outputs.begin(), nodes[i].outputs.end());
      }
      if (part == 0) graph_.groups.push_back(adjacent(graph_, all.inputs));
      append(std::move(all));
      run_waiting(0);
    }
    for (Node& copy : parts_of_sums_[2]) graph_.nodes.push_back(std::move(copy));
    for (auto& nodes : parts_of_sums_) nodes.clear();
  }

  // Moves the ends of messages of the forward, and views of what they received, down to the first
  // node that uses their memory. They stay in their order.
  std::vector<Node> delayed(std::vector<Node> nodes) const {
    std::vector<Node> out, waiting;
    for (Node& node : nodes) {
      const auto is_view_of = [&](const Node& other) {
        return node.op->same_elements == SameElements::view && node.inputs.size() == 1 &&
               std::ranges::find(other.outputs, node.inputs[0]) != other.outputs.end();
      };
      const bool waits = node.phase == Phase::forward && !node.once_per_step &&
                         ((node.op->slot == SlotUse::ends && between_ranks_of_a_stage(node)) ||
                          std::ranges::any_of(waiting, is_view_of));
      if (!waits) {
        const auto last = std::find_if(waiting.rbegin(), waiting.rend(), [&](const Node& other) {
          return other.phase != node.phase || other.chunk != node.chunk ||
                 uses_memory_of(node, other);
        });
        const auto count = waiting.rend() - last;
        std::move(waiting.begin(), waiting.begin() + count, std::back_inserter(out));
        waiting.erase(waiting.begin(), waiting.begin() + count);
      }
      (waits ? waiting : out).push_back(std::move(node));
    }
    std::ranges::move(waiting, std::back_inserter(out));
    return out;
  }

  // Returns whether the node reads or writes memory of the value, or of one of another node.
  bool uses_memory_of(const Node& node, ValueId value) const {
    const auto shares = [&](ValueId id) {
      return id != kNoValue && graph_.storage(id) == graph_.storage(value);
    };
    return value != kNoValue &&
           (std::ranges::any_of(node.inputs, shares) || std::ranges::any_of(node.outputs, shares));
  }
  bool uses_memory_of(const Node& node, const Node& other) const {
    const auto uses = [&](ValueId id) { return uses_memory_of(node, id); };
    return std::ranges::any_of(other.inputs, uses) || std::ranges::any_of(other.outputs, uses);
  }

  // Moves gathers of the backward up to the message before them.
  std::vector<Node> hoisted(std::vector<Node> nodes) {
    std::vector<Node> out;
    for (Node& node : nodes) {
      const bool moves = node.phase == Phase::backward && node.op->slot == SlotUse::begins &&
                         node.op->message == MessageKind::all_gather &&
                         graph_.value(node.outputs[0]).storage_of == kNoValue;
      size_t at = out.size();
      while (moves && at > 0 && may_follow(out[at - 1], node)) --at;
      out.insert(out.begin() + static_cast<ptrdiff_t>(at), std::move(node));
    }
    return out;
  }

  // Returns whether a gather can begin before the node ahead of it.
  bool may_follow(const Node& ahead, const Node& gather) const {
    if (ahead.phase != Phase::backward || ahead.chunk != gather.chunk ||
        ahead.op->message != MessageKind::none) {
      return false;
    }
    return std::ranges::none_of(ahead.outputs, [&](ValueId written) {
      return std::ranges::any_of(gather.inputs, [&](ValueId read) {
        return graph_.storage(written) == graph_.storage(read);
      });
    });
  }

  // Returns whether the node makes gradients that only the update reads, in memory of their own.
  bool is_gradient_alone(const Node& node) const {
    return node.op->slot == SlotUse::none && !node.once_per_step &&
           std::ranges::all_of(node.outputs, [&](ValueId id) {
             const GraphValue& value = graph_.value(id);
             return value.role == Role::gradient && value.storage_of == kNoValue &&
                    std::ranges::all_of(readers_[static_cast<size_t>(id)], [&](int reader) {
                      return phases_[static_cast<size_t>(reader)] == Phase::update;
                    });
           });
  }

  void append(Node node) {
    const bool begins = node.op->slot == SlotUse::begins && node.phase == Phase::backward;
    const bool hides = begins && between_ranks_of_a_stage(node);
    if ((begins && !hides) || changes_what_waiting_nodes_use(node)) {
      run_waiting(0);
    }
    const bool scatters = node.op->message == MessageKind::reduce_scatter;
    graph_.nodes.push_back(std::move(node));
    if (hides) run_waiting(scatters ? 0.5 : 0);
  }

  bool changes_what_waiting_nodes_use(const Node& node) const {
    if (node.op->same_elements == SameElements::view) return false;
    return std::ranges::any_of(node.outputs, [&](ValueId written) {
      const auto uses = [&](const Node& other) { return uses_memory_of(other, written); };
      return graph_.value(written).storage_of != kNoValue && std::ranges::any_of(waiting_, uses);
    });
  }

  // Appends the waiting nodes, but the last ones that have together at most this part of the
  // arithmetic.
  void run_waiting(double keep) {
    std::vector<double> flops;
    for (const Node& node : waiting_) {
      flops.push_back(graph_.cost(node).flops);
    }
    double left = std::accumulate(flops.begin(), flops.end(), 0.0);
    const double kept = keep * left;
    size_t count = 0;
    for (; count < waiting_.size() && (keep == 0 || left > kept); ++count) {
      left -= flops[count];
      graph_.nodes.push_back(std::move(waiting_[count]));
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(count));
  }

  Graph graph_;
  std::vector<std::vector<int>> readers_;  // of each value, as indices of nodes
  std::vector<Phase> phases_;              // of these nodes
  std::vector<Node> waiting_;              // in their order
  // The parts of small sums (0: begin, 1: end, 2: copy) by their outputs, and their nodes.
  std::map<ValueId, int> small_;
  std::array<std::vector<Node>, 3> parts_of_sums_;
  std::string small_over_;
};

}  // namespace

Graph overlap_messages(Graph graph) {
  return Overlap(std::move(graph)).run();
}

}  // namespace dltrain
