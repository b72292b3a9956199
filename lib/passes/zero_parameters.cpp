// ZeRO stage 3: parameters (and copies) are gathered for the forward and again for the backward. In
// all stages an evaluation gathers averages.
//
// A unit's gather begins at the first use of the unit before it, so that it overlaps computation,
// and ends at the unit's own first use. Its memory is released after the last use in the phase.
// Views of parameters that the backward reads are created again from its gathered parameters.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "passes/partition.h"
#include "passes/zero_parts.h"

namespace dltrain {
namespace {

struct Gather {
  const ZeroUnit* unit = nullptr;
  ValueId part = kNoValue;
  std::vector<ValueId> tensors;  // values of the input graph; kNoValue: not in it
  int first_use = -1;            // node
  int64_t slot = 0;
  std::vector<ValueId> begun;
};

class Gathering {
 public:
  Gathering(Graph& graph, const std::vector<UnitParts>& parts, const DataParallelOptions& options)
      : graph_(graph), builder_(graph), options_(options), slot_(graph.next_slot()) {
    // Gathers read the state itself; the output of the update is for the next step.
    for (const UnitParts& unit : parts) {
      for (const UnitParts::Gathered& gathered : unit.gathered) {
        for (ValueId id : gathered.tensors) {
          if (id != kNoValue) source_of_[id] = sources_.size();
        }
        sources_.push_back(
            {.unit = unit.unit, .part = gathered.part, .tensors = gathered.tensors, .begun = {}});
      }
    }
  }

  void run() {
    nodes_ = std::exchange(graph_.nodes, {});
    size_t i = 0;
    while (i < nodes_.size() && nodes_[i].phase != Phase::update) {
      const Node& first = nodes_[i];
      size_t end = i;
      while (end < nodes_.size() && nodes_[end].phase == first.phase &&
             nodes_[end].chunk == first.chunk) {
        ++end;
      }
      builder_.set_chunk(first.chunk);
      run_phase(first.phase, i, end);
      i = end;
    }
    for (; i < nodes_.size(); ++i) graph_.nodes.push_back(nodes_[i]);
    graph_.update_producers();
  }

 private:
  void run_phase(Phase phase, size_t begin, size_t end) {
    builder_.set_phase(phase);
    now_.clear();
    std::vector<Gather> gathers;
    std::vector<bool> seen(sources_.size(), false);
    for (size_t i = begin; i < end; ++i) {
      for (ValueId id : nodes_[i].inputs) {
        if (id == kNoValue) continue;
        const auto source = source_of_.find(root_of(id));
        if (source == source_of_.end() || seen[source->second]) continue;
        seen[source->second] = true;
        gathers.push_back(sources_[source->second]);
        gathers.back().first_use = static_cast<int>(i);
        gathers.back().slot = slot_++;
      }
    }
    size_t next = 0;
    if (!gathers.empty()) start(gathers[0]);
    for (size_t i = begin; i < end; ++i) {
      for (; next < gathers.size() && gathers[next].first_use == static_cast<int>(i); ++next) {
        finish(gathers[next]);
        if (next + 1 < gathers.size()) start(gathers[next + 1]);
      }
      push(nodes_[i]);
    }
  }

  // Returns the parameter whose memory a value shares in the input graph.
  ValueId root_of(ValueId id) const {
    const auto view = views_.find(id);
    return view != views_.end() ? view->second : graph_.storage(id);
  }

  Attributes message(const Gather& gather) const {
    return message_attributes(gather.slot, options_.mesh.over(gather.unit->axes));
  }

  void start(Gather& gather) {
    std::vector<int64_t> shapes;
    for (const ZeroUnit::Member& member : gather.unit->members) {
      shapes.push_back(member.spec.shape.rank());
      shapes.insert(shapes.end(), member.spec.shape.begin(), member.spec.shape.end());
    }
    Attributes attributes = message(gather);
    attributes.set("shapes", shapes);
    gather.begun = builder_.emit("all_gather_begin", {gather.part}, attributes);
    graph_.groups.push_back(unit_group(graph_, *gather.unit, gather.begun));
  }

  void finish(const Gather& gather) {
    const auto whole = builder_.emit("all_gather_end", gather.begun, message(gather));
    for (size_t i = 0; i < whole.size(); ++i) {
      if (gather.tensors[i] == kNoValue) continue;
      now_[gather.tensors[i]] = whole[i];
      graph_.value(whole[i]).name = graph_.value(gather.tensors[i]).name;
    }
  }

  void push(Node node) {
    for (ValueId& id : node.inputs) {
      if (id != kNoValue) id = replaced(id);
    }
    // A view shares the memory of its new input.
    for (ValueId id : node.outputs) {
      const ValueId base = graph_.value(id).storage_of;
      if (base == kNoValue || !source_of_.contains(root_of(base))) continue;
      views_[id] = root_of(base);
      const ValueId here = replaced(base);
      graph_.value(id).storage_of = here;
      now_[id] = id;
    }
    graph_.nodes.push_back(std::move(node));
  }

  // Returns the value that replaces a parameter, or a view of one, in this phase.
  ValueId replaced(ValueId id) {
    if (const auto found = now_.find(id); found != now_.end()) return found->second;
    if (!views_.contains(id)) return id;
    const Node& view = nodes_[static_cast<size_t>(graph_.value(id).producer)];
    check_internal(view.inputs.size() == 1, "{} of a parameter is not a view", view.op->name);
    const ValueId again =
        builder_.emit1(view.op->name, {replaced(view.inputs[0])}, view.attributes);
    return now_[id] = again;
  }

  Graph& graph_;
  GraphBuilder builder_;
  const DataParallelOptions& options_;
  int64_t slot_;
  std::vector<Node> nodes_;  // of the input graph, in which producers are indices
  std::vector<Gather> sources_;
  std::map<ValueId, size_t> source_of_;  // by parameter or copy
  std::map<ValueId, ValueId> views_;     // views of parameters in the input graph
  std::map<ValueId, ValueId> now_;       // in this phase
};

}  // namespace

void gather_parameters(Graph& graph, const std::vector<UnitParts>& parts,
                       const DataParallelOptions& options) {
  Gathering(graph, parts, options).run();
}

}  // namespace dltrain
