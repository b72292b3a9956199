#include "passes/optimizer_in_backward.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/builder.h"
#include "passes/verify_pass.h"

namespace dltrain {
namespace {

// Updates wait until their gradients have so many bytes together: a call for each would be small.
constexpr size_t kGroupBytes = size_t{8} << 20;

class Mover {
 public:
  Mover(Graph& graph, bool clips) : graph_(graph), builder_(graph), clips_(clips) {}

  void run() {
    builder_.step_state();
    find_updates();
    const std::vector<Node> old = std::exchange(graph_.nodes, {});
    builder_.set_phase(Phase::backward);
    builder_.set_layer("optimizer");
    if (clips_) {
      previous_ = builder_.add_value("clip_norm.previous", {Shape{1}, DType::f64}, Role::moment);
    }
    state_ = graph_.step_state;
    for (size_t i = 0; i < old.size(); ++i) {
      if (!moved_[i]) add(old[i]);
      for (const int update : due_[i]) wait(old[static_cast<size_t>(update)]);
      if (old[i].phase == Phase::backward && (bytes_ >= kGroupBytes || remaining_ == 0)) flush();
    }
    check_internal(waiting_.empty() && remaining_ == 0, "updates without a place in the backward");
    graph_.update_producers();
  }

 private:
  // Fills due_: for each node, the updates that may run after it.
  void find_updates() {
    const auto count = graph_.nodes.size();
    std::vector<int> last_use(graph_.values.size(), -1);  // of each storage
    moved_.assign(count, false);
    due_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const Node& node = graph_.nodes[i];
      moved_[i] = node.op->update == UpdateKind::norm || node.op->update == UpdateKind::optimizer;
      if (moved_[i] || node.phase == Phase::update) continue;
      for (const auto* ids : {&node.inputs, &node.outputs}) {
        for (const ValueId id : *ids) {
          if (id != kNoValue) last_use[storage(id)] = static_cast<int>(i);
        }
      }
    }
    for (size_t i = 0; i < count; ++i) {
      const Node& node = graph_.nodes[i];
      if (node.op->update != UpdateKind::optimizer) continue;
      int last = 0;
      for (size_t k = 1; k < node.inputs.size(); ++k) {
        if (node.inputs[k] != kNoValue) last = std::max(last, last_use[storage(node.inputs[k])]);
      }
      due_[static_cast<size_t>(last)].push_back(static_cast<int>(i));
      ++remaining_;
    }
  }

  size_t storage(ValueId id) const { return static_cast<size_t>(graph_.storage(id)); }

  // Appends a node, which reads the step state as the updates so far have left it.
  void add(Node node) {
    for (ValueId& id : node.inputs) {
      if (id != kNoValue && graph_.storage(id) == graph_.step_state) id = state_;
    }
    graph_.nodes.push_back(std::move(node));
  }

  void wait(const Node& update) {
    waiting_.push_back(update);
    bytes_ += graph_.value(update.inputs[2]).spec.bytes();
    --remaining_;
  }

  void flush() {
    if (waiting_.empty()) return;
    std::vector<ValueId> gradients;
    for (const Node& update : waiting_) gradients.push_back(update.inputs[2]);
    const ValueId squares = emit("sum_of_squares", std::move(gradients), {})[0];
    std::vector<ValueId> inputs{state_, squares};
    if (clips_) inputs.push_back(previous_);
    const std::vector<ValueId> results = emit(
        "running_norm", std::move(inputs),
        {{"first", state_ == graph_.step_state}, {"last", remaining_ == 0}, {"clips", clips_}});
    state_ = results[0];
    if (clips_) previous_ = results[1];
    for (Node& update : waiting_) {
      update.phase = Phase::backward;
      update.once_per_step = true;
      add(std::move(update));
    }
    waiting_.clear();
    bytes_ = 0;
  }

  std::vector<ValueId> emit(std::string_view op, std::vector<ValueId> inputs,
                            Attributes attributes) {
    std::vector<ValueId> results = builder_.emit(op, std::move(inputs), std::move(attributes));
    graph_.nodes.back().once_per_step = true;
    return results;
  }

  Graph& graph_;
  GraphBuilder builder_;
  bool clips_;
  std::vector<bool> moved_;
  std::vector<std::vector<int>> due_;
  ValueId state_ = kNoValue, previous_ = kNoValue;
  std::vector<Node> waiting_;
  size_t bytes_ = 0, remaining_ = 0;
};

}  // namespace

Graph optimizer_in_backward(Graph graph, bool clips) {
  Mover(graph, clips).run();
  verify_pass(graph);
  return graph;
}

}  // namespace dltrain
